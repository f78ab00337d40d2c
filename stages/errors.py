"""Errors that a user can fix, one class for each exit code of the contract.

A message names the fault, its place and the remedy, in one or two sentences.
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
    """Bad usage or configuration: nothing was started, or a setting failed during work."""

    exit_code = 2


class DataError(MemlmError, ValueError):
    """Missing or bad input data; names the file and the place in it."""

    exit_code = 3


class ArtifactError(MemlmError):
    """An artifact is missing, corrupt, changed, or of the wrong kind or an incompatible version."""

    exit_code = 4


class ResourceError(MemlmError):
    """Out of disk, memory or GPU memory; finished work is kept."""

    exit_code = 5


class BusyError(MemlmError):
    """Another process holds the artifact."""

    exit_code = 75


_ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def content_of(file: Path, *errors: type[Exception]) -> Iterator[None]:
    """Guard for parsing a file of an artifact: a correct hash does not guarantee meaningful
    content.

    Args:
        errors: further errors, besides Python's own, that bad content may cause.
    Raises: ArtifactError naming the file.
    """
    try:
        yield
    except Exception as error:
        expected: tuple[type[Exception], ...] = (
            errors if isinstance(error, MemlmError) else (*_ODD, *errors)
        )
        if not isinstance(error, expected):
            raise
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtifactError(
            f"{file} holds nothing that memlm wrote ({type(error).__name__}: {reason})."
        ) from error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, back to the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type, if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def did_you_mean(name: str, legal: Iterable[str]) -> str:
    """A suffix for a message about an unknown name: the nearest known one, else the list of them."""
    legal = sorted(set(legal))
    near = nearest(name, legal)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(legal)}"


def nearest(name: str, names: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name most similar to `name`, with at least the similarity `alike` (1: equal); None:
    there is none.
    """
    return next(iter(get_close_matches(name, list(names), n=1, cutoff=alike)), None)


def shortened(text: str, max_length: int = 200) -> str:
    """Shorten a text for a message.

    >>> shortened("a" * 5, max_length=3)
    'aaa…'
    """
    return text if len(text) <= max_length else text[:max_length] + "…"


def without_middle(text: str, max_length: int = 2000) -> str:
    """Cut the middle of a text that nobody would read, and say how much was cut.

    >>> without_middle("a" * 6 + "b" * 6, max_length=4)
    'aa… (8 more characters) …bb'
    """
    if len(text) <= max_length:
        return text
    half = max_length // 2
    return f"{text[:half]}… ({len(text) - 2 * half:,} more characters) …{text[-half:]}"
