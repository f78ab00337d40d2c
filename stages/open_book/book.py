"""An opened book: its tokens, its passages, and the way they are chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import SplitReader
from stages.examples.windows import Window
from stages.open_book.choice import Bm25Choice, Chosen, KeyChoice, PassageChoice, Query
from stages.open_book.passages import Passages, cut_passages
from stages.open_book.settings import OpenBook
from stages.retrieval.book_input import BOOK
from stages.retrieval.neighbors import ExternalMemory
from stages.search.config import forbidden_rows
from stages.text.tokens import open_split


class Opened(NamedTuple):
    """Passages for n windows: those chosen, and whether a better one was hidden, bool [n]."""

    chosen: Chosen
    excluded: np.ndarray


@dataclass(frozen=True)
class Book:
    """A text of passages; `own_offsets`: where documents start, by splits that are this very text."""

    settings: OpenBook
    ids: np.ndarray
    """Tokens of the text, int [T]."""
    passages: Passages
    choice: PassageChoice
    own_offsets: Mapping[str, np.ndarray]
    exclude: str
    """Rule for the tokens that a window of the text itself does not find."""

    @classmethod
    def open(
        cls,
        artifact: Artifact,
        settings: OpenBook,
        scored: Artifact,
        exclude: str,
        external: ExternalMemory | None,
    ) -> "Book":
        """Open a book for an evaluation.

        Args:
            artifact: tokens of the book.
            scored: tokens of the evaluation.
            external: memory whose index finds passages `by=keys`.
        """
        text = BOOK.text(artifact)
        split = open_split(artifact.zarr("tokens.zarr"), text.split)
        offsets = np.asarray(split.doc_offsets[:], np.int64)
        ids = np.asarray(split.ids[:])
        passages = cut_passages(offsets, np.asarray(split.paragraph_ends[:]), settings.passage)
        choice: PassageChoice
        if settings.by == "keys":
            assert external is not None, "resolved settings have an index"
            choice = KeyChoice(external, passages)
        else:
            choice = Bm25Choice.of(ids, passages, int(artifact.metrics["vocabulary_size"]))
        own_offsets = dict.fromkeys(BOOK.own_splits(artifact, scored), offsets)
        return cls(settings, ids, passages, choice, own_offsets, exclude)

    def open_at(
        self, reader: SplitReader, split: str, windows: Sequence[Window], starts: np.ndarray
    ) -> Opened:
        """Passages for windows of a split, chosen by the tokens before those that they score.

        Args:
            starts: the first token that a query may hold, of each window, int64 [n].
        """
        count = self.settings.passages
        chosen = Chosen.nothing(len(windows), count)
        excluded = np.zeros(len(windows), bool)

        # Windows with a query, by index.
        indices = []
        queries = []
        for index, (window, start) in enumerate(zip(windows, starts.tolist(), strict=True)):
            first = max(start, window.scored_from - self.settings.query)
            # At the beginning of a text nothing was read yet, so nothing can be looked for.
            if first < window.scored_from:
                indices.append(index)
                queries.append(Query(first, window.scored_from))
        if not queries:
            return Opened(chosen, excluded)

        nothing = np.zeros((len(queries), 2), np.int64)
        is_own_text = split in self.own_offsets
        hidden = nothing
        if is_own_text:
            hidden = self._hidden(split, np.array([query.stop for query in queries]))
        best = self.choice.choose(reader, split, queries, count, hidden)
        chosen.numbers[indices] = best.numbers
        chosen.scores[indices] = best.scores

        # Whether the exclusion took away the best passage.
        if is_own_text:
            best_of_all = self.choice.choose(reader, split, queries, 1, nothing)
            excluded[indices] = best_of_all.numbers[:, 0] != best.numbers[:, 0]
        return Opened(chosen, excluded)

    def tokens(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of some passages, the best of which stands last, next to the context, int64 [n].

        Args:
            numbers: passages, the best first, int64 [k]; -1: none.
        """
        pieces = [np.zeros(0, np.int64)]
        for number in numbers[::-1].tolist():
            if number >= 0:
                start, stop = self.passages.bounds[number : number + 2]
                pieces.append(self.ids[start:stop].astype(np.int64))
        return np.concatenate(pieces)

    def _hidden(self, split: str, scored_from: np.ndarray) -> np.ndarray:
        """Ranges of passages that windows of the text itself must not find, int64 [n, 2]."""
        offsets = self.own_offsets[split]
        end = int(offsets[-1])
        ranges = []
        for start in scored_from.tolist():
            # Of a whole stride: where the text ends must not change what is found before.
            stop = min(start + self.settings.stride, end)
            rows = forbidden_rows(self.exclude, start, stop, offsets)
            assert rows is not None, "a text that holds the answers has an exclusion"
            # What any token of the stride must not find; ranges of later tokens reach farther.
            first_row = rows[0, 0]
            last_row = min(rows[-1, 1], end)
            ranges.append((first_row, last_row))
        return self.passages.overlapping(np.array(ranges))
