"""Settings of a comparison: what is compared, and how intervals are computed."""

from dataclasses import dataclass

from stages.errors import UsageError
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.figures.token_scores import Reading

LARGEST = 2**31 - 1
MOST_SAMPLES = 10_000_000
"""Beyond that a bootstrap takes hours, and its intervals are no better."""


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of a comparison. Raises UsageError for numbers that make no sense."""

    reading: Reading = "final"
    """Probabilities that are compared: with all that a report's first memory row reads, or of the model alone."""
    samples: int = Bootstrap.samples
    """Resamples of the bootstrap."""
    confidence: float = Bootstrap.confidence
    """Share of the resamples that an interval holds."""
    seed: int = Bootstrap.seed
    """Seed of the resampling."""
    block_tokens: int | None = None
    """Resample blocks of so many consecutive tokens; None: documents, or blocks where there is one document."""
    most: int = 10
    """How many of the tokens won and lost most are shown."""
    around: int | None = None
    """Tokens of context shown before and after each of them; None: as many as fill a line."""

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise UsageError(f"The confidence must lie between 0 and 1, not be {self.confidence}.")
        for name, least in {"samples": 1, "block_tokens": 1, "seed": 0, "most": 0, "around": 0}.items():
            value = getattr(self, name)
            largest = MOST_SAMPLES if name == "samples" else LARGEST
            if value is not None and not least <= value <= largest:
                raise UsageError(f"--{name.replace('_', '-')} must be {least} to {largest:,}, not {value}.")

    @property
    def bootstrap(self) -> Bootstrap:
        """How intervals are made."""
        return Bootstrap(self.samples, self.confidence, self.seed)
