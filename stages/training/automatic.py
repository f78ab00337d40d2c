"""What `auto` stands for in the settings of `train`: chosen from the text and the model, never by the clock.

The same command must name the same work on any machine, however busy; how long it takes is told while it runs.
"""

from stages.models.config import BackboneConfig

TOKENS_A_WEIGHT = 20
"""Training tokens that a weight is worth, where there is text enough (Hoffmann et al. 2022, arXiv:2203.15556)."""
MOST_PASSES = 8
"""Reading a small text more often gives little, or harms: the first four passes are worth as much as new text, the next
ever less (Muennighoff et al. 2023, arXiv:2305.16264). The preset `tiny` on a novel of 131,000 tokens has a validation
perplexity of 54.7 after 4 passes, 51.2 after 8 and 52.5 after 16; on
42,000 tokens of that novel 30.2 after 8 and 32.0 after 16; on tinyshakespeare (353,000) 49.5 after 4, 42.1 after 8."""
VALIDATIONS = 20
"""In a run: the weights of the best are kept, so they must come often enough to find it."""


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
