"""Figures of a stream of K tasks, from R: R[i, j] is the score of the weights after task i on the
test of task j.

Row 0 of R has the scores before anything was learnt, so R is [K + 1, K].
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from stages.artifacts.schema import Figures, Schema

PERPLEXITY = "perplexity"
"""Measure of a model of text, instead of accuracy: `score` of its metrics."""
Matrix = Float[np.ndarray, "rows K"]


def averages(scores: Matrix) -> list[float]:
    """A_i = (1 / i) Σ_{j ≤ i} R[i, j], after each task i: the macro-average over the tasks learnt
    so far.

    >>> averages(np.array([[0.5, 0.5], [1.0, 0.5], [0.25, 0.75]]))
    [1.0, 0.5]
    """
    return [float(scores[i, :i].mean()) for i in range(1, len(scores))]


def forgetting(scores: Matrix) -> float | None:
    """Mean over the tasks before the last of max_{j ≤ i < K} R[i, j] - R[K, j]; None for a single
    task.

    Source: Chaudhry et al. 2018 (arXiv:1801.10112), section 2.3.

    >>> forgetting(np.array([[0.5, 0.5], [1.0, 0.5], [0.25, 0.75]]))
    0.75
    """
    last = len(scores) - 1
    lost = [scores[j + 1 : last, j].max() - scores[last, j] for j in range(last - 1)]
    return float(np.mean(lost)) if lost else None


def backward_transfer(scores: Matrix) -> float | None:
    """Mean over the tasks before the last of R[K, j] - R[j, j]; None for a single task.

    Source: Lopez-Paz and Ranzato 2017 (GEM, arXiv:1706.08840), equation 3.

    >>> backward_transfer(np.array([[0.5, 0.5], [1.0, 0.5], [0.25, 0.75]]))
    -0.75
    """
    last = len(scores) - 1
    gained = [scores[last, j] - scores[j + 1, j] for j in range(last - 1)]
    return float(np.mean(gained)) if gained else None


def forward_transfer(scores: Matrix) -> float | None:
    """Mean over the tasks after the first of R[j - 1, j] - R[0, j]; None for a single task.

    Source: Lopez-Paz and Ranzato 2017 (GEM, arXiv:1706.08840), equation 4.

    >>> forward_transfer(np.array([[0.25, 0.25], [1.0, 0.5], [0.25, 0.75]]))
    0.25
    """
    gained = [scores[j, j] - scores[0, j] for j in range(1, scores.shape[1])]
    return float(np.mean(gained)) if gained else None


def stream_figures(scores: Matrix, places: Sequence[int]) -> dict[str, Any]:
    """All figures of the scores after the tasks `places`; a figure is None if scores that it needs
    are missing.

    >>> stream_figures(np.array([[0.25, 0.75]]), [2])["average"]
    0.5
    """
    whole = list(places) == list(range(scores.shape[1] + 1))
    return {
        "average": float(scores[-1].mean()),
        "averages": averages(scores) if whole else None,
        "forgetting": forgetting(scores) if whole else None,
        "backward_transfer": backward_transfer(scores) if whole else None,
        "forward_transfer": forward_transfer(scores) if whole else None,
    }


def domain_figures(perplexities: Matrix, places: Sequence[int]) -> dict[str, Any]:
    """Figures of perplexities, where lower is better: `average` is AP, `forgetting` AP+.

    AP_j = exp((1 / j) Σ_{i ≤ j} log R[j, i]);  AP+ = 1 / (K - 1) Σ_{i < K} (R[K, i] - R[i, i]).

    >>> domain_figures(np.array([[9.0, 9.0], [2.0, 8.0], [4.0, 9.0]]), [0, 1, 2])["averages"]
    [2.0, 6.0]

    Source: Qin et al. 2022 (ELLE, arXiv:2203.06311), section 4.1.
    """
    whole = list(places) == list(range(perplexities.shape[1] + 1))
    lost = backward_transfer(perplexities)
    means = [float(np.exp(np.log(perplexities[i, :i]).mean())) for i in range(1, len(perplexities))]
    return {
        "average": float(np.exp(np.log(perplexities[-1]).mean())),
        "averages": means if whole else None,
        "forgetting": lost if whole else None,
        "backward_transfer": None,
        "forward_transfer": None,
    }


Score = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RowFigures(Figures):
    """Figures of one reading."""

    row: str
    matrix: list[list[Score]]
    average: Score


class MatrixFigures(Figures):
    """Metrics of the scores of a stream."""

    tasks: list[str]
    after: list[int]
    rows: list[RowFigures]
    score: Literal["perplexity"] | None = None
    """Measure of the scores; None: accuracy."""

    @model_validator(mode="after")
    def _accuracies_are_shares(self) -> Self:
        if self.score is None and any(
            share > 1 for row in self.rows for line in row.matrix for share in line
        ):
            raise ValueError("an accuracy is more than 1")
        return self


MATRIX = Schema(MatrixFigures)
