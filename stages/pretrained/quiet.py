"""transformers without its own words and bars on the terminal, and its errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO

from stages.errors import DataError, MemlmError
from stages.pretrained.damage import damage, head_damage
from stages.pretrained.location import Location, packing, require_extra


@contextmanager
def quiet() -> Iterator[None]:
    """Without bars and warnings of transformers. Raises: UsageError without the extra."""
    require_extra()
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with redirect_stderr(StringIO()):  # bars that cannot be switched off
        yield


@contextmanager
def reading(location: Location, what: str) -> Iterator[None]:
    """Reading what somebody else wrote with transformers, which raises whatever it likes.

    Args:
        what: is read, as a message names it: "model".
    Raises: UsageError without the extra; DataError for what cannot be read: that a file of weights is cut short, else
        the library's own first line.
    """
    if (wrong := head_damage(location)) is not None:
        raise DataError(wrong)
    try:
        with quiet():
            yield
    except (MemlmError, MemoryError):
        raise
    except ImportError as error:
        if (packed := packing(location)) is not None:
            raise DataError(
                f"The weights of {location.spec} are quantized ({packed}), which needs packages that memlm does not "
                "use: import the model that it was made of, or a GGUF file of it."
            ) from error
        reason = _first_line(error)
        raise DataError(f"The {what} of {location.spec} cannot be read: {reason} (pip install 'memlm[hf]')") from error
    except Exception as error:
        if (wrong := damage(location)) is not None:
            raise DataError(wrong) from error
        raise DataError(f"The {what} of {location.spec} cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """The first line of a library's error, and the second where the first only announces it."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])[:300]
