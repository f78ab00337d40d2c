"""How much the memories of a row count: a file a policy."""

from stages.registry import Registry

WEIGHTS = Registry(
    "weight of memory",
    {
        "fixed": "stages.retrieval.weights.grid:Fixed",
        "grid": "stages.retrieval.weights.grid:Grid",
        "learned": "stages.retrieval.weights.learned:Learned",
        "adaptive": "stages.retrieval.weights.adaptive:Adaptive",
        "distance": "stages.retrieval.weights.distance:ByDistance",
        "length": "stages.retrieval.weights.per_context:ByLength",
        "searched": "stages.retrieval.weights.learned:Searched",
    },
)
"""The code is a `WeightPolicy`. Every name but those of `IMPLIED` is a value of the weight: `lambda=learned`."""

CHOICES = "weight-choices.json"
"""File of a report: what the policy of its first row, with weights of each context, is made again from."""

IMPLIED = ("fixed", "grid", "searched")
"""Policies that follow from other keys of a reading."""


def typed_policies() -> list[str]:
    """Names that a weight may have in place of numbers."""
    return [name for name in WEIGHTS.names() if name not in IMPLIED]
