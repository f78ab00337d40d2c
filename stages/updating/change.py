"""A change of a datastore: forgotten documents, the added split, and the origins of rows
afterwards.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePath

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.stage import Inputs
from stages.config import read_regular
from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.lineage.rows import DatastoreRows
from stages.lineage.runs import KeptRows, Runs
from stages.lineage.sources import RowSource
from stages.text.documents import NamedRun, names_file, read_runs
from stages.text.tokens import open_split
from stages.updating.config import UpdateConfig

NAMED = "name:"
"""Prefix for a name that would read as numbers or as a file of them."""
SHOWN = 3


def resolve_documents(words: Iterable[str], names: Sequence[NamedRun], total: int) -> np.ndarray:
    """Numbers of the given documents, int64 [F], sorted and distinct.

    Args:
        words: `12`; `3-7`, the last one included; a name, for all documents with this name;
            `name:12` for a name that would read as a number; `@FILE`, with one of these on each
            line.
        names: names of the documents, in order.
        total: number of documents.
    Raises: UsageError for unknown documents, with similar names, and for a file that cannot be
    read.
    """
    ranges_of_name = _ranges_of_names(names)
    is_meant = np.zeros(total, bool)
    for word in _words(words):
        # 18 digits fit into 64 bits; a longer number is a name.
        numbers = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", word)
        if numbers:
            first = int(numbers[1])
            last = int(numbers[2] or numbers[1])
            if not first <= last < total:
                raise UsageError(
                    f"There is no document {word}: the datastore has 0 to {total - 1:,}."
                )
            is_meant[first : last + 1] = True
        else:
            name = word.removeprefix(NAMED)
            if name not in ranges_of_name:
                raise UsageError(_unknown_name(name, names, total))
            for documents in ranges_of_name[name]:
                is_meant[documents] = True
    return np.flatnonzero(is_meant)


def _ranges_of_names(names: Sequence[NamedRun]) -> dict[str, list[slice]]:
    """The numbers of the documents that have each name; several runs may have one name."""
    ranges: dict[str, list[slice]] = {}
    start = 0
    for run in names:
        stop = start + run.documents
        if run.name is not None:
            ranges.setdefault(run.name, []).append(slice(start, stop))
        start = stop
    return ranges


def spelled_numbers(documents: np.ndarray) -> tuple[str, ...]:
    """Document numbers in the fewest words that `resolve_documents` reads.

    >>> spelled_numbers(np.array([1, 4, 5, 6]))
    ('1', '4-6')
    """
    if not len(documents):
        return ()
    run_starts = np.flatnonzero(np.diff(documents) > 1) + 1
    words = []
    for run in np.split(documents, run_starts):
        words.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return tuple(words)


def _words(words: Iterable[str]) -> Iterable[str]:
    """The words, with the lines of a file in place of `@FILE`."""
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        try:
            lines = read_regular(Path(word[1:])).split("\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8"
            raise UsageError(
                f"{word[1:]}, which names documents, cannot be read: {reason}."
            ) from None
        yield from (line.removesuffix("\r") for line in lines if line.strip())


def _unknown_name(name: str, names: Sequence[NamedRun], total: int) -> str:
    """The message for a name that no document has, with names that the user may mean."""
    known_names = list(_ranges_of_names(names))
    problem = f"No document is called {name!r}"
    if not known_names:
        return f"{problem}: names were not kept; give numbers, 0 to {total - 1:,}."

    guesses = _similar_names(name, known_names)
    if guesses:
        return f"{problem}; did you mean {' or '.join(map(repr, guesses))}?"

    examples = ", ".join(map(repr, known_names[:SHOWN]))
    num_hidden = len(known_names) - SHOWN
    more = f" and {num_hidden:,} more" if num_hidden > 0 else ""
    return f"{problem}; known are {examples}{more}"


def _similar_names(name: str, known_names: Sequence[str]) -> list[str]:
    """Names that may be meant by an unknown one, the best guess first."""
    # A name with the same stem is a better guess than one with similar letters.
    stem = _stem(name)
    same_stem = [known for known in known_names if stem and _stem(known) == stem]
    similar = get_close_matches(name, known_names, n=SHOWN, cutoff=0.6)
    # Keys of a dictionary are distinct and keep their order.
    distinct = dict.fromkeys([*same_stem, *similar])
    return list(distinct)[:SHOWN]


def _stem(name: str) -> str:
    """The last part of a path without endings, in lower case: `doc/A.rst` and `a.md` have the same
    stem.
    """
    return PurePath(name).name.partition(".")[0].lower()


@dataclass(frozen=True)
class RowTables:
    """Origins of rows: all their data except keys and values.

    `doc_offsets` int64 [D + 1]; `paragraph_ends` int64 [P]; `paragraph_hashes` uint64 [P]; `names`
    of the D documents.
    """

    sources: list[RowSource]
    runs: Runs
    doc_offsets: np.ndarray
    paragraph_ends: np.ndarray
    paragraph_hashes: np.ndarray
    names: list[NamedRun]

    @property
    def rows(self) -> int:
        return self.runs.rows

    @property
    def documents(self) -> int:
        return len(self.doc_offsets) - 1

    @property
    def run_table(self) -> np.ndarray:
        """First row, source and place in the source of each run, int64 [R, 3]."""
        return np.stack([self.runs.starts[:-1], self.runs.sources, self.runs.places], axis=1)

    @classmethod
    def of(cls, rows: DatastoreRows) -> "RowTables":
        """Tables of a datastore."""
        names = _as_many(rows.named_runs, len(rows.doc_offsets) - 1)
        sources = rows.sources
        is_complete = rows.text.ids.shape[0] == rows.rows
        if not is_complete:
            # A part of a text does not have the paragraphs of the whole.
            sources = [source.model_copy(update={"paragraphs": None}) for source in sources]
        return cls(sources, rows.runs, rows.doc_offsets, *rows.paragraphs(), names)

    def without(self, forgotten: np.ndarray) -> "RowTables":
        """The same tables without some documents, given by their numbers, int64 [F]."""
        if not len(forgotten):
            return self
        kept_rows = KeptRows.of_documents(self.doc_offsets, forgotten)
        stays = np.ones(self.documents, bool)
        stays[forgotten] = False
        doc_starts = self.doc_offsets[:-1][stays]

        # The hash of a paragraph that lost rows no longer fits its text.
        starts = np.concatenate([[0], self.paragraph_ends[:-1]])
        old_lengths = self.paragraph_ends - starts
        lengths = kept_rows.before(self.paragraph_ends) - kept_rows.before(starts)
        whole = (lengths > 0) & (lengths == old_lengths)

        # Sources without rows are dropped, and the others renumbered in the same order.
        runs = self.runs.keep(kept_rows)
        sources = np.unique(runs.sources)
        has_rows = np.isin(np.arange(len(self.sources)), sources)
        new_numbers = np.cumsum(has_rows) - 1
        return RowTables(
            sources=[self._source_left(number, runs) for number in sources.tolist()],
            runs=runs.renumbered(new_numbers),
            doc_offsets=np.append(kept_rows.before(doc_starts), kept_rows.rows),
            paragraph_ends=kept_rows.before(self.paragraph_ends[whole]),
            paragraph_hashes=self.paragraph_hashes[whole],
            names=list(_names_left(self.names, stays)),
        )

    def _source_left(self, number: int, runs: Runs) -> RowSource:
        """A source after the change; it loses the digest of its paragraphs if some of its rows are
        gone.
        """
        source = self.sources[number]
        old_start, old_stop = self.runs.block(number)
        start, stop = runs.block(number)
        if stop - start == old_stop - old_start:
            return source
        return source.model_copy(update={"paragraphs": None})

    def followed_by(self, tokens: Artifact, split: str) -> "RowTables":
        """The same tables, followed by all rows of a split."""
        added = open_split(tokens.zarr("tokens.zarr"), split)
        offsets = np.asarray(added.doc_offsets[:])
        paragraph_ends = np.asarray(added.paragraph_ends[:])
        paragraph_hashes = np.asarray(added.paragraph_hashes[:])

        path = tokens.path / names_file(split)
        known_names = list(read_runs(path)) if path.is_file() else []
        names = _as_many(known_names, len(offsets) - 1)

        # Offsets of the added rows count on from the last of these.
        num_added = int(offsets[-1])
        return RowTables(
            sources=[*self.sources, RowSource.of(tokens, split)],
            runs=self.runs.followed_by(num_added, len(self.sources)),
            doc_offsets=np.concatenate([self.doc_offsets[:-1], offsets + self.rows]),
            paragraph_ends=np.concatenate([self.paragraph_ends, paragraph_ends + self.rows]),
            paragraph_hashes=np.concatenate([self.paragraph_hashes, paragraph_hashes]),
            names=self.names + names,
        )


def rows_to_reencode(runs: Runs, kept_rows: KeptRows, windows: WindowSettings) -> np.ndarray:
    """For each range that stays, number of rows at its start that had forgotten rows in their
    window, int64 [K].

    Args:
        runs: runs of all rows, which were encoded in windows over their sources.
        kept_rows: the rows that stay.
    """
    context = windows.context
    stride = windows.stride
    counts = []
    for start, stop in kept_rows.ranges.tolist():
        source, token = _token_of(runs, start)
        if start == 0 or source != _token_of(runs, start - 1)[0]:
            # Nothing of its source comes before the range.
            counts.append(0)
            continue

        # Token t is read in the first window that holds it. It has number
        # ⌈(t - context + 1) / stride⌉, and numbers begin at 0; -(-a // b) is ⌈a / b⌉.
        tokens = np.arange(token, token + context)
        window_numbers = np.maximum(0, -(-(tokens - context + 1) // stride))
        window_starts = window_numbers * stride

        # Windows that begin before the range hold forgotten rows.
        num_reread = int(np.count_nonzero(window_starts < token))
        # Rows of the next run stand elsewhere in the source.
        run = int(np.searchsorted(runs.starts, start, side="right")) - 1
        run_stop = int(runs.starts[run + 1])
        counts.append(min(num_reread, stop - start, run_stop - start))
    return np.array(counts, np.int64)


def _token_of(runs: Runs, row: int) -> tuple[int, int]:
    """Source of a row, and the number of its token in the source."""
    sources, tokens = runs.places_of(np.array([row]))
    return int(sources[0]), int(tokens[0])


def _as_many(names: Sequence[NamedRun], documents: int) -> list[NamedRun]:
    """Names of exactly `documents` documents; those beyond the known ones have no name."""
    unknown = documents - sum(run.documents for run in names)
    return [*names, NamedRun(unknown, None)] if unknown > 0 else list(names)


def _names_left(names: Sequence[NamedRun], stays: np.ndarray) -> Iterator[NamedRun]:
    """The names of the documents that stay; `stays`: bool [D]."""
    # Number of documents that stay before each document, so that a difference counts a range.
    staying_before = np.concatenate([[0], np.cumsum(stays)])
    start = 0
    for run in names:
        stop = start + run.documents
        documents = int(staying_before[stop] - staying_before[start])
        if documents:
            yield NamedRun(documents, run.name)
        start = stop


@dataclass(frozen=True)
class Change:
    """Tables of a datastore's rows before and after a change; arrays are computed on demand."""

    before: RowTables
    forgotten: np.ndarray
    """Numbers of the forgotten documents, int64 [F]."""
    tokens: Artifact | None
    """Tokens with the added split; None: nothing is added."""
    split: str | None

    @classmethod
    def of(cls, config: UpdateConfig, inputs: Inputs) -> "Change":
        """The change that resolved settings request."""
        before = RowTables.of(DatastoreRows(inputs[PREVIOUS]))
        forgotten = resolve_documents(config.forget, (), before.documents)
        return cls(before, forgotten, inputs.artifacts.get(ADDED), config.split)

    @cached_property
    def kept_rows(self) -> KeptRows:
        """The rows that stay."""
        return KeptRows.of_documents(self.before.doc_offsets, self.forgotten)

    @cached_property
    def remaining_tables(self) -> RowTables:
        """Tables of the rows that stay."""
        return self.before.without(self.forgotten)

    @cached_property
    def after(self) -> RowTables:
        """Tables of all rows: first those that stay, then the added ones."""
        if self.tokens is None:
            return self.remaining_tables
        assert self.split is not None
        return self.remaining_tables.followed_by(self.tokens, self.split)
