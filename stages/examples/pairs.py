"""Pairs of sentences: each target sentence is read with its source, in rows that are padded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch

from stages.examples.batching import padded_rows, token_batches
from stages.examples.cutting import Cutting
from stages.examples.examples import BATCH_TOKENS, Batch, Block, Examples
from stages.examples.streams import ReadAhead
from stages.examples.windows import Window

Padded = tuple[np.ndarray, np.ndarray]
"""Rows int64 [B, L], and which of their tokens count, bool [B, L]."""


@dataclass(frozen=True)
class Pairs(Examples):
    """Example i is document i, a sentence of the target, which is read with sentence i of the
    source.

    Its first input is `eos`, whatever stands before it in the split. Both sides of a row are padded
    with `eos`.
    """

    by_tokens: ClassVar[bool] = True

    ids: Any
    eos: int
    offsets: Any
    source_ids: Any
    source_offsets: Any

    @classmethod
    def open(cls, split: Mapping[str, Any], eos: int, cutting: Cutting) -> Self:
        """Pairs of a split; a sentence is one window, whatever `cutting` says."""
        return cls(
            split["ids"], eos, split["doc_offsets"], split["source_ids"], split["source_offsets"]
        )

    @cached_property
    def documents(self) -> np.ndarray:
        return np.asarray(self.offsets[:])

    @cached_property
    def sources(self) -> np.ndarray:
        """The first token of each source sentence, and the end, int64 [count + 1]."""
        return np.asarray(self.source_offsets[:])

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.documents)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.maximum(self.lengths, np.diff(self.sources))

    def starts(self, which: np.ndarray) -> np.ndarray:
        return self.documents[which]

    def batch(self, which: np.ndarray) -> Batch:
        target = padded_rows(self.ids, self.documents[which], self.lengths[which], self.eos)
        source_lengths = np.diff(self.sources)[which]
        source = padded_rows(self.source_ids, self.sources[which], source_lengths, self.eos)
        return self._batch(which, target, source)

    def blocks(self, start: int, stop: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Block]:
        """A block has whole sentences; the first and the last may be scored in part."""
        if start == stop:
            return
        first, last = self.documents_of(start, stop)
        tokens = ReadAhead(self.ids, int(self.documents[last]))
        source_tokens = ReadAhead(self.source_ids, int(self.sources[last]))

        sizes = self.sizes[first:last]
        for batch_first, batch_last in token_batches(sizes, batch_tokens):
            # Batches count sentences from `first`.
            which = np.arange(first + batch_first, first + batch_last)
            target = self._stretch(tokens, self.documents, which)
            source = self._stretch(source_tokens, self.sources, which)
            batch = self._batch(which, target, source)

            # Targets of a block are the scored tokens, in one row.
            windows = self._windows(which)
            scored_from = max(start, windows[0].start)
            scored_to = min(stop, windows[-1].stop)
            scored = tokens(scored_from, scored_to)
            batch.targets = torch.from_numpy(scored)
            yield Block(scored_from, scored_to, windows, batch, continues=False)

    def windows(self, start: int, stop: int) -> list[Window]:
        return self._windows(np.arange(*self.documents_of(start, stop))) if start < stop else []

    def documents_of(self, start: int, stop: int) -> tuple[int, int]:
        """Range of the sentences with tokens in [start, stop), as (first, last + 1)."""
        first, last = np.searchsorted(self.documents, (start, stop - 1), side="right").tolist()
        return first - 1, last

    def source(self, number: int) -> np.ndarray:
        """Tokens of a source sentence, `<eos>` at its end, int64 [S]."""
        start, stop = self.sources[number : number + 2]
        return np.asarray(self.source_ids[start:stop], np.int64)

    def _windows(self, which: np.ndarray) -> list[Window]:
        starts = self.documents[which].tolist()
        stops = self.documents[which + 1].tolist()
        return [Window(start, stop, start) for start, stop in zip(starts, stops, strict=True)]

    def _stretch(self, tokens: ReadAhead, offsets: np.ndarray, which: np.ndarray) -> Padded:
        """Rows of sentences that are consecutive in storage."""
        start = int(offsets[which[0]])
        stop = int(offsets[which[-1] + 1])
        lengths = np.diff(offsets)[which]
        return padded_rows(tokens(start, stop), offsets[which] - start, lengths, self.eos)

    def _batch(self, which: np.ndarray, target: Padded, source: Padded) -> Batch:
        targets, mask = map(torch.from_numpy, target)
        source_tokens, source_mask = map(torch.from_numpy, source)
        begin = torch.full((len(which), 1), self.eos)
        return Batch(
            inputs=torch.cat((begin, targets[:, :-1]), 1),
            targets=targets,
            places=self.starts(which)[:, None] + np.arange(targets.shape[1]),
            mask=mask,
            source=source_tokens,
            source_mask=source_mask,
        )
