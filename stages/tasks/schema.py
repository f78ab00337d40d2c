"""Schema of `evaluate-tasks`."""

from stages.artifacts.schema import Figures, Schema, Share


class MatrixFigures(Figures):
    """Metrics of the scores of a stream."""

    tasks: list[str]
    average: Share


MATRIX = Schema(MatrixFigures)
