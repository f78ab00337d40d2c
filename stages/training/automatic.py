"""Resolves `auto` in the settings of `train`: from the text and the model, never by the clock.

The same command must name the same work on any machine, however busy; how long it takes is shown while it runs.
"""

from stages.metrics import MOST_PASSES
from stages.models.config import BackboneConfig

PASSES_OF_IMPORTED = 2.0
"""Passes over the text for a model that already knows its language: with more it learns the text by heart."""
TOKENS_A_WEIGHT = 20
"""Training tokens that a weight is worth, where there is text enough (Hoffmann et al. 2022, arXiv:2203.15556)."""
VALIDATIONS = 20
"""Validations of a run. The weights of the best are kept, so they must come often enough to find it."""


def worthwhile_passes(tokens: int, weights: int) -> float:
    """Passes over the training split that a model of so many weights learns from.

    >>> worthwhile_passes(tokens=4_000_000, weights=800_000)
    4.0
    >>> worthwhile_passes(tokens=100_000, weights=800_000)
    8.0
    >>> worthwhile_passes(tokens=10**9, weights=800_000)
    1.0
    """
    return float(min(max(TOKENS_A_WEIGHT * weights / max(tokens, 1), 1), MOST_PASSES))


def validations(steps: int) -> int:
    """Steps between validations."""
    return max(1, steps // VALIDATIONS)


def weights(model: BackboneConfig) -> int:
    """How many numbers a model learns, its sizes being known."""
    import torch

    from stages.models.language_model import LanguageModel

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in LanguageModel(model).parameters())
