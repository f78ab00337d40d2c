"""The keys that every reading understands: what is compared, and how sharply. Free of torch."""

from typing import Annotated, Literal

from pydantic import Field

from stages.memory.hyperparameter import Choice, Hyperparameter, ReadingOptions

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
TEMPERATURE = Hyperparameter("τ", "temperature τ", means="divides scores: the larger, the less the nearest count")
THETA = Hyperparameter("θ", means="multiplies scores: the larger, the more the nearest count")
Similarity = Literal["dot", "scaled-dot", "l2"]


MEANS = {
    "dot": "scores are inner products",
    "scaled-dot": "scores are inner products, divided by the square root of their dimensions",
    "l2": "scores are minus the squared distance",
    "hidden": "compared are the hidden states that the next token is predicted from",
    "ffn-input": "compared is what enters the last feed-forward layer",
}
"""How a reading compares, and what: the words of `similarity` and `key`."""


class Comparison(ReadingOptions):
    """How a position finds entries alike."""

    similarity: Similarity | None = None
    """None: `scaled-dot` for a model trained by `trime*`; else the metric of the index, or `dot` without one."""
    key: Literal["hidden", "ffn-input"] | None = None
    """None: the key of the datastore; without one that of its training for `trime*`, else `hidden`."""
    temperature: Annotated[Choice[Positive] | None, TEMPERATURE] = None
    """τ: scores are divided by it."""
    theta: Annotated[Choice[NotNegative] | None, THETA] = None
    """θ = 1/τ: scores are multiplied by it; 0 makes all entries equal."""
