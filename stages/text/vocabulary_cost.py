"""Cost of a vocabulary, as messages state it. Free of NumPy."""

from stages.numbers import number, size

MANY_TYPES = 2**16
"""Types above which a vocabulary costs more than most models of its text."""
TRAINED_BYTES = 16
"""Bytes of a weight in training: the weight, its gradient and two moments, in float32."""


def vocabulary_cost(weights: int, scored: int, others: int) -> str:
    """Text for messages: weights, memory and share of a step's arithmetic that a vocabulary takes.

    Args:
        weights: number of weights of the vocabulary, input and output.
        scored: number of weights that score a token.
        others: number of weights of the rest of the model; each takes one product per token, like
        those of `scored`.

    >>> vocabulary_cost(51_200_000, 51_200_000, 25_165_824)
    "51.2 million weights, 819.2 MB with gradients and moments, and 67% of a step's arithmetic"
    """
    share = scored / (scored + others)
    return (
        f"{number(weights / 1e6)} million weights, {size(weights * TRAINED_BYTES)} with gradients and moments, and "
        f"{share:.0%} of a step's arithmetic"
    )
