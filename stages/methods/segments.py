"""A training split as segments of equal length, and orders in which batches take them."""

from typing import Any

import numpy as np

from stages.examples.windows import positions_back
from stages.text.tokens import require_segment


class Segments:
    """Segment i holds tokens iL … iL+L-1 as targets; its inputs are the tokens one place earlier.

    The first input of the split is `<eos>`. A last segment shorter than L is left out.
    """

    def __init__(self, ids: Any, length: int, eos: int, documents: np.ndarray | None = None) -> None:
        """Args:
            ids: the split's token ids [T].
            length: tokens a segment, L.
            eos: id of `<eos>`.
            documents: int64 [D + 1], offsets of documents; None: the split is one.
        Raises: DataError if the split is shorter than one segment.
        """
        self.ids, self.length, self.eos = ids, length, eos
        self.documents = np.array([0, len(ids)]) if documents is None else documents
        self.count = len(ids) // length
        require_segment(len(ids), length)

    def read(self, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets, int64 [B, L] each, of segments [B]."""
        place = self.places(segments)
        inputs = self.ids[np.maximum(place - 1, 0)].astype(np.int64)
        inputs[place == 0] = self.eos
        return inputs, self.ids[place].astype(np.int64)

    def back(self, segments: np.ndarray) -> np.ndarray:
        """How many tokens of its own document stand before each token of segments [B], int64 [B, L]."""
        return positions_back(self.documents, self.places(segments))

    def documents_in(self, segments: np.ndarray) -> np.ndarray:
        """The documents that segments [B] hold tokens of, by number, each once."""
        ends = np.array([[0], [self.length - 1]]) + segments * self.length
        first, last = np.searchsorted(self.documents, ends, side="right") - 1
        counts = last - first + 1
        starts = np.repeat(first - np.cumsum(counts) + counts, counts)
        return np.unique(starts + np.arange(len(starts)))

    def places(self, segments: np.ndarray) -> np.ndarray:
        """Places of tokens in the split, int64 [B, L]."""
        places: np.ndarray = segments[:, None] * self.length + np.arange(self.length)
        return places


def shuffled_order(segments: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """Segments of batches [batches, size]: a permutation drawn from (seed, epoch), without what fills no batch."""
    permutation = np.random.default_rng([seed, epoch]).permutation(segments)
    batches = segments // size
    return permutation[: batches * size].reshape(batches, size)


def aligned_order(segments: int, size: int) -> np.ndarray:
    """Segments of batches whose row b is one stream, int64 [batches, size]; the same in every epoch.

    The split is cut into `size` streams of equal length; segments after the last stream are left out.
    """
    batches = segments // size
    return np.arange(size * batches).reshape(size, batches).T
