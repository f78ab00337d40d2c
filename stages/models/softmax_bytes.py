"""What scoring a vocabulary holds in memory, by arithmetic: blocks of scores, and gradients where it learns."""

from itertools import pairwise

from stages.models.config import VocabularyConfig
from stages.models.cross_entropy import block_rows

NUMBER = 4
"""Bytes: scores are always in float32."""
BLOCKS = 2
"""Of scores, that are held at once."""


def softmax_bytes(config: VocabularyConfig, tokens: int, device: str, *, learning: bool) -> int:
    """At once, beside the weights, of `tokens` hidden states; with adaptive softmax as if all were in every cluster,
    for gradients, and the largest cluster at a time, for scores.

    Args:
        device: cpu or cuda, which says how large blocks are.
    """
    sizes = _softmaxes(config)
    scores = max(BLOCKS * min(tokens, block_rows(words, device)) * words for words, _ in sizes)
    hidden = tokens * config.width * NUMBER  # in float32
    if not learning:
        return scores * NUMBER + hidden
    weights = sum(words * width for words, width in sizes)
    return (scores + 2 * weights) * NUMBER + 2 * hidden  # gradients, and as they are scaled by that of the loss


def _softmaxes(config: VocabularyConfig) -> list[tuple[int, int]]:
    """Words and width of each: the head with an entry for every further cluster, and these."""
    size = config.vocab_size or 0
    if not config.cutoffs:
        return [(size, config.width)]
    bounds = (0, *config.cutoffs, size)
    words = [stop - start for start, stop in pairwise(bounds)]
    words[0] += len(config.cutoffs)
    return [(count, config.width // config.factor**cluster) for cluster, count in enumerate(words)]
