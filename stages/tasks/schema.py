"""Schema of `evaluate-tasks`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.artifacts.schema import Figures, Schema

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
        if self.score is None and any(one > 1 for row in self.rows for line in row.matrix for one in line):
            raise ValueError("an accuracy is more than 1")
        return self


MATRIX = Schema(MatrixFigures)
