"""Names of documents: the file that they are from, or a field of their `.jsonl` record.

Kept as runs, one JSON object a line (`{"documents": 12, "name": "a.txt"}`): so many documents with this name, then
those of the next line. Names are for people: no id and no digest depends on them.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Self

from stages.errors import content_of
from stages.text.documents import OPENS_DOCUMENT, MarkedPiece


class NamedRun(NamedTuple):
    """Consecutive documents of one name; None: nobody knows it."""

    documents: int
    name: str | None

    def dumps(self) -> str:
        """The run as a line of its file."""
        return json.dumps(self._asdict()) + "\n"


class NameRuns:
    """Runs of names as pieces of text stream by."""

    def __init__(self) -> None:
        self._documents, self._name = 0, ""

    def add(self, piece: MarkedPiece) -> NamedRun | None:
        """Take a piece; returns the run that it brings to its end, if any."""
        finished = None if piece.name is None else self.finish()
        self._name = self._name if piece.name is None else piece.name
        self._documents += bool(piece.marks & OPENS_DOCUMENT)
        return finished

    def finish(self) -> NamedRun | None:
        """The run under way, if there is one."""
        run = NamedRun(self._documents, self._name) if self._documents else None
        self._documents = 0
        return run


def read_runs(path: Path) -> Iterator[NamedRun]:
    """The runs of a file, one after the other. Raises: ArtifactError where a line is none."""
    with content_of(path), path.open(encoding="utf-8") as file:
        for line in file:
            run = NamedRun(**json.loads(line))
            if type(run.documents) is not int or run.documents < 0 or not isinstance(run.name, str | None):
                raise ValueError(f"{line[:60]!r} is no run of names")
            yield run


def runs_between(runs: Iterable[NamedRun], start: int, stop: int) -> Iterator[NamedRun]:
    """The runs of the documents [start, stop) alone.

    >>> list(runs_between([NamedRun(3, "a"), NamedRun(2, "b"), NamedRun(9, "c")], 1, 4))
    [NamedRun(documents=2, name='a'), NamedRun(documents=1, name='b')]
    """
    end = 0
    for documents, name in runs:
        begin, end = end, end + documents
        if begin >= stop:
            return
        if end > start:
            yield NamedRun(min(end, stop) - max(begin, start), name)


class DocumentNames:
    """Names of the documents of one split, by their number."""

    def __init__(self, runs: Iterable[NamedRun]) -> None:
        held = list(runs)
        self._names = [run.name for run in held]
        self._ends = list(accumulate(run.documents for run in held))

    @classmethod
    def read(cls, folder: Path, split: str) -> Self:
        """Those of a tokens artifact's folder; one that was made before names were kept has none."""
        path = folder / names_file(split)
        return cls(read_runs(path) if path.is_file() else ())

    def of(self, document: int) -> str | None:
        """Name of a document; None where it is not known."""
        run = bisect_right(self._ends, document)
        return self._names[run] if run < len(self._names) else None


def names_in(folder: Path, split: str) -> list[str]:
    """Names of the documents of a split, each once, in order; empty where none is named."""
    path = folder / names_file(split)
    return list(dict.fromkeys(run.name for run in read_runs(path) if run.name)) if path.is_file() else []


def names_file(split: str) -> str:
    """Where in a tokens artifact the names of a split are."""
    return f"names/{split}.jsonl"
