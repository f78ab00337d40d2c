"""Log-probabilities of the tokens of a prompt, and the most probable tokens at each place."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor


class PromptScores(NamedTuple):
    """Scores of T tokens with all memories, in nats.

    A first token that nothing precedes has NaN, and no tokens beside it.
    """

    log_p: np.ndarray
    """Log-probability of each token, float32 [T]."""
    top_ids: np.ndarray
    """The most probable tokens at each place, falling, int64 [T, top]; -1 where there are none."""
    top_log_p: np.ndarray
    """Their log-probabilities, float32 [T, top]; a token has the same float in `log_p`."""
    is_best: np.ndarray
    """Whether no token is more probable, bool [T]."""

    @classmethod
    def unknown(cls, top: int) -> Self:
        """Scores of one token that nothing precedes."""
        return cls(
            np.full(1, np.nan, np.float32),
            np.full((1, top), -1, np.int64),
            np.full((1, top), np.nan, np.float32),
            np.zeros(1, bool),
        )

    @classmethod
    def of(cls, log_p: Tensor, tokens: Sequence[int], top: int) -> Self:
        """Scores of tokens by their distributions, [n, V]; ties go to the lower id.

        >>> scores = PromptScores.of(torch.tensor([[0.25, 0.75]]).log(), [0], top=2)
        >>> scores.top_ids.tolist(), scores.is_best.tolist()
        ([[1, 0]], [False])
        """
        targets = torch.tensor(list(tokens), dtype=torch.long, device=log_p.device)
        target_log_p = log_p.gather(1, targets[:, None])[:, 0]
        is_best = target_log_p >= log_p.amax(1)

        # Stable sorts, first by id and then by probability, put equal ones in the order of ids.
        top_log_p, top_ids = log_p.topk(top, 1)
        top_ids, order = top_ids.sort(1)
        top_log_p = top_log_p.gather(1, order)
        top_log_p, order = top_log_p.sort(dim=1, descending=True, stable=True)
        top_ids = top_ids.gather(1, order)

        return cls(
            target_log_p.cpu().numpy(),
            top_ids.cpu().numpy(),
            top_log_p.cpu().numpy(),
            is_best.cpu().numpy(),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self], top: int) -> Self:
        """Scores of consecutive tokens together."""
        if not parts:
            parts = [cls(*(part[:0] for part in cls.unknown(top)))]
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class TextPart(NamedTuple):
    """Positions [start, stop) of a text."""

    number: int
    start: int
    stop: int


def blocks(lengths: Sequence[int], size: int) -> Iterator[list[TextPart]]:
    """Cut texts into blocks of `size` positions; a block may hold parts of several texts.

    Args:
        lengths: positions of each text.

    >>> [[tuple(part) for part in block] for block in blocks([3, 2], 4)]
    [[(0, 0, 3), (1, 0, 1)], [(1, 1, 2)]]
    """
    block: list[TextPart] = []
    room = size
    for number, length in enumerate(lengths):
        start = 0
        while start < length:
            stop = min(length, start + room)
            block.append(TextPart(number, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield block
                block = []
                room = size
    if block:
        yield block
