"""Weights of the memories of a row, by policy."""

from stages.registry import Registry

WEIGHTS = Registry(
    "weight of memory",
    {
        "fixed": "stages.retrieval.weights.grid:Fixed",
        "grid": "stages.retrieval.weights.grid:Grid",
        "learned": "stages.retrieval.weights.learned:Learned",
        "adaptive": "stages.retrieval.weights.learned:Adaptive",
        "distance": "stages.retrieval.weights.per_context:ByDistance",
        "length": "stages.retrieval.weights.per_context:ByLength",
        "searched": "stages.retrieval.weights.learned:Searched",
    },
)
"""Weight policies by name; the code is a `WeightPolicy`. Names outside `IMPLIED` are legal values:
`lambda=learned`.
"""

CHOICES = "weight-choices.json"
"""File of a report from which the policy of its first row, with weights for each context, is
restored.
"""

IMPLIED = ("fixed", "grid", "searched")
"""Policies that follow from other keys of a reading."""


def typed_policies() -> list[str]:
    """Names that are legal instead of a number for a weight."""
    return [name for name in WEIGHTS.names() if name not in IMPLIED]
