"""Made pairs of sentences."""

import numpy as np

from stages.examples.pairs import Pairs

EOS = 0


def made(lengths: list[int], source_lengths: list[int]) -> Pairs:
    """Sentence i is i + 1 repeated, and its end; its source the same from 101 on."""

    def side(counts: list[int], first: int) -> tuple[np.ndarray, np.ndarray]:
        ids = [
            token for i, count in enumerate(counts) for token in [first + i] * (count - 1) + [EOS]
        ]
        return np.array(ids, np.uint16), np.cumsum([0, *counts])

    (ids, offsets), (source, source_offsets) = side(lengths, 1), side(source_lengths, 101)
    return Pairs(ids, EOS, offsets, source, source_offsets)
