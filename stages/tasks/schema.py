"""Schema of `evaluate-tasks`."""

from stages.artifacts.schema import Figures, Schema, Share


class RowFigures(Figures):
    """Figures of one reading."""

    row: str
    matrix: list[list[Share]]
    average: Share


class MatrixFigures(Figures):
    """Metrics of the scores of a stream."""

    tasks: list[str]
    after: list[int]
    rows: list[RowFigures]


MATRIX = Schema(MatrixFigures)
