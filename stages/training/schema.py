"""Schema of `train` and `import-model`: the size of a model, and how its training ended."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from stages.artifacts.schema import Figures, Positive, Schema


class ModelFigures(Figures):
    """Metrics of a model."""

    parameters: Positive
    valid_perplexity: float | None = None
    passes: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    still_falling: bool | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if ("passes" in self.model_fields_set) != ("still_falling" in self.model_fields_set):
            raise ValueError("passes and still_falling, of which one is missing")
        return self


MODEL = Schema(ModelFigures)
