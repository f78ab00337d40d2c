"""Errors that a user can mend, one class for each exit code of the contract.

A message says what is wrong, where, and what to do, in one or two sentences.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar


class MemlmError(Exception):
    """An expected failure: shown without a traceback, ends the process with `exit_code`."""

    exit_code: ClassVar[int] = 1


class UsageError(MemlmError, ValueError):
    """Bad usage or configuration: nothing was started, or a setting failed in the midst of work."""

    exit_code = 2


class DataError(MemlmError, ValueError):
    """Missing or bad input data; names the file and the place in it."""

    exit_code = 3


class ArtifactError(MemlmError):
    """An artifact is missing, corrupt, of the wrong kind, of other bytes or of an incompatible version."""

    exit_code = 4


class ResourceError(MemlmError):
    """Out of disk, memory or GPU memory; what is done is kept."""

    exit_code = 5


class BusyError(MemlmError):
    """Another process holds the artifact."""

    exit_code = 75


_ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def content_of(file: Path, *errors: type[Exception]) -> Iterator[None]:
    """Reading what a file of an artifact holds; its hash says that it is what was written, not that it makes sense.

    Args:
        errors: what else, beside the errors of Python itself, odd content leads to.
    Raises: ArtifactError naming the file.
    """
    try:
        yield
    except Exception as error:
        known: tuple[type[Exception], ...] = errors if isinstance(error, MemlmError) else (*_ODD, *errors)
        if not isinstance(error, known):
            raise
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtifactError(f"{file} holds nothing that memlm wrote ({type(error).__name__}: {reason}).") from error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised for, back to the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its type, if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suffix for a message about an unknown name: the nearest known one, else the list of them."""
    known = sorted(set(known))
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"


def nearest(name: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name that is most like another, at least so much (1: the same); None: no one is."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=alike)), None)


def shortened(text: str, most: int = 200) -> str:
    """Shorten a text for a message.

    >>> shortened("a" * 5, most=3)
    'aaa…'
    """
    return text if len(text) <= most else text[:most] + "…"
