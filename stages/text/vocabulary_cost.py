"""Cost of a large vocabulary to a model, in words."""

from stages.numbers import number, size

MANY_TYPES = 2**16
"""A vocabulary with more costs more than most models of its text."""
TRAINED_BYTES = 16
"""A weight in training: itself, its gradient and two moments, in float32."""


def vocabulary_cost(weights: int, scored: int, others: int) -> str:
    """Weights, memory and share of a step of a vocabulary, as a message says it.

    Args:
        weights: of the vocabulary, input and output.
        scored: those that score a token.
        others: weights of the rest of the model; each takes part in one product a token, as those of `scored` do.

    >>> vocabulary_cost(51_200_000, 51_200_000, 25_165_824)
    "51.2 million weights, 819.2 MB with gradients and moments, and 67% of a step's arithmetic"
    """
    share = scored / (scored + others)
    return (
        f"{number(weights / 1e6)} million weights, {size(weights * TRAINED_BYTES)} with gradients and moments, and "
        f"{share:.0%} of a step's arithmetic"
    )
