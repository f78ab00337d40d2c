"""Settings of a comparison: what is compared, and how intervals are computed."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from stages.config import Settings

if TYPE_CHECKING:
    from stages.evaluation.figures.intervals import Bootstrap


class ComparisonSettings(Settings):
    """Settings of a comparison."""

    reading: Literal["final", "model"] = "final"
    """Probabilities that are compared: with what the first memory row reads (final), or of the model alone."""
    samples: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """Resamples of the bootstrap."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Share of the resamples that an interval holds."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the resampling."""
    block_tokens: Annotated[int, Field(ge=1)] | None = None
    """Resample blocks of so many consecutive tokens; None: documents, or blocks where there is one document."""
    most: Annotated[int, Field(ge=0)] = 10
    """How many of the tokens won and lost most are shown."""
    around: Annotated[int, Field(ge=0)] | None = None
    """Tokens of context shown before and after each of them; None: half a line."""

    @property
    def bootstrap(self) -> "Bootstrap":
        """How intervals are made."""
        from stages.evaluation.figures.intervals import Bootstrap

        return Bootstrap(self.samples, self.confidence, self.seed)
