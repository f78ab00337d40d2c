"""Settings of dynamic evaluation, spelled `--memory dynamic:key=value,…`. Free of torch.

>>> parse_dynamic("dynamic:rate=0.0002/0.0001,decay=0.004").spelled
'dynamic:rate=0.0001/0.0002,decay=0.004'
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, ValidationError, model_validator

from stages.adaptation import UPDATE_RULES
from stages.errors import UsageError, did_you_mean
from stages.memory.hyperparameter import Choice, Hyperparameter, ReadingOptions, spelled_value
from stages.retrieval.grammar import DYNAMIC, NONE, explained, key_values

LARGEST_GRID = 64
"""Maximum number of combinations that are tried: each reads part of the tuning split."""
SEGMENT = 20
"""Default tokens of a segment, for a model that reads a stream."""
EPSILON = 1.0
"""Default ε, in units of mean(M)."""
RANK = 8
"""Default rank of the factors of `what=lora`."""

NotNegative = Annotated[float, Field(ge=0)]


class Numbers(ReadingOptions):
    """One rate, and one strength of the way back."""

    rate: float
    decay: float


class Dynamic(ReadingOptions):
    """Keys of `--memory dynamic`; an instance that has `segment` is complete."""

    means: ClassVar[str] = "weights learn from each segment after it is scored"
    rate: Annotated[
        Choice[NotNegative],
        Hyperparameter("η", "rate η", off=0.0, means="size of a step of the weights that learn"),
    ] = "tune"
    """η, the size of a step; 0: nothing learns."""
    decay: Annotated[
        Choice[NotNegative],
        Hyperparameter("γ", "decay γ", means="pull of the weights back to those of training"),
    ] = "tune"
    """γ, the pull back to the weights of training after each segment; only of `what=all`."""
    epsilon: Annotated[float, Field(gt=0, le=1000)] | None = None
    """ε in units of mean(M), only of `what=all`: the larger, the less a weight moves that training
    hardly moved; None: 1."""
    segment: Annotated[int, Field(ge=1, le=1 << 14)] | None = None
    """Tokens that are scored before weights learn from them; None: 20, or the stride of windows."""
    scope: Literal["stream", "document"] = "stream"
    """Whether weights go back to those of training at every document (document), or never."""
    what: str = "all"
    """Weights that learn: all of them, or low-rank factors beside them (lora)."""
    rank: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Rank of the factors; None: 8."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.what not in UPDATE_RULES:
            raise ValueError(
                f"what is no way to learn ({self.what}); "
                f"{did_you_mean(self.what, UPDATE_RULES.names())}"
            )
        if self.what == "all" and self.rank is not None:
            raise ValueError("rank is of the factors of what=lora")
        if self.what == "lora" and self.decay not in ("tune", (0.0,)):
            raise ValueError("decay is of what=all: factors begin at 0 and have no way back")
        if self.what == "lora" and self.epsilon is not None:
            raise ValueError("epsilon is of what=all: steps of factors are those of Adam")
        return self

    @property
    def choices(self) -> list[str]:
        """The keys whose number is chosen on the tuning split."""
        numbers = {"rate": self.rate}
        if self.what != "lora":
            numbers["decay"] = self.decay
        return [name for name, values in numbers.items() if values == "tune" or len(values) > 1]

    @property
    def copies(self) -> int:
        """Numbers in memory for each weight of the model.

        Where all learn: the weight, that of training, its gradient, a copy, and three factors.
        """
        return 1 if self.what == "lora" else 7

    @property
    def learns(self) -> bool:
        """Whether a complete instance changes any weight, at any of its rates."""
        return any(candidate.rate > 0 for candidate in self.candidates)

    @property
    def candidates(self) -> list[Numbers]:
        """All combinations of a complete instance, the smallest rate first.

        Where nothing learns, there is nothing to pull back.
        """
        assert not isinstance(self.rate, str) and not isinstance(self.decay, str)
        return [
            Numbers(rate=rate, decay=decay)
            for rate in self.rate
            for decay in (self.decay if rate else self.decay[:1])
        ]

    def slower(self, numbers: Numbers) -> list[Numbers]:
        """Numbers of a complete instance with a smaller rate and the same decay, the largest first.

        The last rate is 0, with which the weights of training stay. One combination has none.
        """
        assert not isinstance(self.rate, str)
        if len(self.candidates) == 1 or not numbers.rate:
            return []
        rates = [rate for rate in self.rate if 0 < rate < numbers.rate]
        return [Numbers(rate=rate, decay=numbers.decay) for rate in (*reversed(rates), 0.0)]

    @property
    def spelled(self) -> str:
        """The one way to write these settings; defaults are left out."""
        given = self.model_dump(exclude_defaults=True)
        keys = [f"{key}={spelled_value(value)}" for key, value in given.items()]
        return DYNAMIC + (":" + ",".join(keys) if keys else "")


SpelledDynamic = Annotated[Dynamic, PlainSerializer(lambda dynamic: dynamic.spelled, str)]
"""Settings that are written as text in manifests."""


def parse_dynamic(spec: str) -> Dynamic:
    """The settings that a text describes.

    Raises: UsageError that names the text and what is wrong with it.
    """
    _, _, tail = spec.partition(":")
    settings = dict(key_values(spec, tail, Dynamic.names()))
    try:
        dynamic = Dynamic.model_validate(settings)
    except ValidationError as error:
        raise UsageError(f"--memory {spec}: {explained(error)}.") from None
    counts = [len(values) for values in (dynamic.rate, dynamic.decay) if values != "tune"]
    if prod(counts) > LARGEST_GRID:
        raise UsageError(
            f"--memory {spec}: {prod(counts)} combinations are too many; at most {LARGEST_GRID} "
            "are tried, since each reads part of the tuning split."
        )
    return dynamic


def split_dynamic(specs: Sequence[str]) -> tuple[Dynamic | None, tuple[str, ...]]:
    """The settings of dynamic evaluation, if the first of some texts has them, and the other texts.

    Raises: UsageError if `none` stands beside it.
    """
    if not specs or specs[0].partition(":")[0] != DYNAMIC:
        return None, tuple(specs)
    if NONE in specs:
        raise UsageError("--memory none is the plain model and stands alone.")
    return parse_dynamic(specs[0]), tuple(specs[1:])
