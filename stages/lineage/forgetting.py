"""Documents as people name them: by number, by name, or by a file of such."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path

import numpy as np

from stages.config import read_regular
from stages.errors import UsageError
from stages.text.names import NamedRun

NAMED = "name:"
"""Before a name that looks like numbers or a file of them."""
SHOWN = 3


def documents_meant(words: Iterable[str], names: Sequence[NamedRun], total: int) -> np.ndarray:
    """Numbers of the documents that are meant, int64 [F], rising, each once.

    Args:
        words: `12`; `3-7`, the last one included; a name, which means all documents that are called so; `name:12`,
            where a name would read as something else; `@FILE`, with one of these on each line.
        names: of the documents, in order.
        total: how many documents there are.
    Raises: UsageError for what is not there, with what comes near, and for a file that cannot be read.
    """
    ends = [0, *accumulate(run.documents for run in names)]
    chosen = np.zeros(total, bool)
    for word in _words(words):
        numbers = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", word)
        if numbers:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            if not first <= last < total:
                raise UsageError(f"There is no document {word}: the datastore has 0 to {total - 1:,}.")
            chosen[first : last + 1] = True
        else:
            name = word.removeprefix(NAMED)
            called = [number for number, run in enumerate(names) if run.name == name]
            if not called:
                raise UsageError(_unknown(name, names, total))
            for number in called:
                chosen[ends[number] : ends[number + 1]] = True
    return np.flatnonzero(chosen)


def spelled_numbers(documents: np.ndarray) -> tuple[str, ...]:
    """Numbers in the fewest words, as `documents_meant` reads them.

    >>> spelled_numbers(np.array([1, 4, 5, 6]))
    ('1', '4-6')
    """
    if not len(documents):
        return ()
    runs = np.split(documents, np.flatnonzero(np.diff(documents) > 1) + 1)
    return tuple(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _words(words: Iterable[str]) -> Iterable[str]:
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        try:
            lines = read_regular(Path(word[1:])).split("\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8"
            raise UsageError(f"{word[1:]}, which names documents, cannot be read: {reason}.") from None
        yield from (line.removesuffix("\r") for line in lines if line.strip())


def _unknown(name: str, names: Sequence[NamedRun], total: int) -> str:
    known = dict.fromkeys(run.name for run in names if run.name is not None)
    if not known:
        return f"No document is called {name!r}: names were not kept; give numbers, 0 to {total - 1:,}."
    near = get_close_matches(name, known, n=SHOWN, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known are {_some(list(known))}"
    return f"No document is called {name!r}; {hint}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(map(repr, names[:SHOWN])) + (f" and {more:,} more" if more > 0 else "")
