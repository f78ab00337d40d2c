"""Schema of `evaluate`: rows of a report, and scores of tokens."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stages.artifacts.schema import Expected, Figures, Schema, anything, between

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


class RowFigures(Figures):
    """Metrics of one row of a report."""

    row: str
    perplexity: float | None
    nll: float | None


class ReportFigures(Figures):
    """Metrics of a report."""

    rows: Annotated[list[RowFigures], Field(min_length=1)]
    method: str
    split: str
    score: Literal["all", "last-word"]
    memories: list[dict[str, Any]]


def score_arrays(report: "Artifact", name: str) -> Expected | None:
    """The arrays of `scores.zarr`; values are compared with infinity and nan where they are averaged."""
    tokens = report.metrics.get("tokens")
    if name == "scores.zarr/target":
        types = report.input("tokens").metrics["vocabulary_size"]
        return Expected((tokens,), ("int32",), between(0, types, "ids of the vocabulary"))
    shape = (tokens, None) if name == "scores.zarr/logp_memory" else (tokens,)
    return Expected(shape, ("float32",), anything)


REPORT = Schema(ReportFigures, score_arrays)
