"""A text with other tokens from a place on: what was scored before that place may not change."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.examples import STREAMS
from stages.examples.examples import Corpus


@dataclass(frozen=True)
class ChangedIds:
    """Tokens of a split, of which those from `place` on are others; read by slices."""

    ids: Any
    place: int
    stop: int
    """End of the text."""
    vocabulary: int

    @property
    def shape(self) -> tuple[int]:
        return (self.stop,)

    def __getitem__(self, part: slice) -> np.ndarray:
        """The next type of the vocabulary stands for each token from `place` on.

        >>> ChangedIds(np.array([4, 5, 6, 7]), place=2, stop=4, vocabulary=8)[1:4].tolist()
        [5, 7, 0]
        """
        start, stop, _ = part.indices(self.stop)
        ids = np.asarray(self.ids[start:stop], np.int64)
        later = np.arange(start, stop) >= self.place
        changed: np.ndarray = np.where(later, (ids + 1) % self.vocabulary, ids)
        return changed


def with_other_future(corpus: Corpus, split: str, place: int, stop: int, vocabulary: int) -> Corpus:
    """A corpus whose `split` has other tokens from `place` on.

    A stream ends at `stop`, so that long windows are not read to their ends. Pairs stay whole.

    Args:
        vocabulary: number of types.
    """
    arrays = {}
    for name in corpus.read:
        path = f"{split}/{name}"
        arrays[path] = corpus.arrays[path]
    ids_path = f"{split}/ids"
    ids = arrays[ids_path]

    if corpus.kind == STREAMS:
        # The document that is read at `stop` ends there.
        offsets_path = f"{split}/doc_offsets"
        offsets = np.asarray(arrays[offsets_path][:])
        earlier_offsets = offsets[offsets < stop]
        arrays[offsets_path] = np.append(earlier_offsets, stop)
    else:
        stop = int(ids.shape[0])
    arrays[ids_path] = ChangedIds(ids, place, stop, vocabulary)
    return Corpus(arrays, corpus.eos, corpus.kind, corpus.names)
