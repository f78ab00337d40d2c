"""One reading of a memory with all its settings, checked. Free of torch."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from stages.config import Settings
from stages.errors import UsageError
from stages.retrieval.grammar import NONE, parse_phrase, row_name, written_out


def _rising(value: Any) -> Any:
    """Numbers to choose from in rising order, each once: a list means the same however it is written."""
    return tuple(sorted(set(value))) if isinstance(value, tuple) else value


def _split_list(value: Any) -> Any:
    """`0.1/0.2` -> ("0.1", "0.2"); `tune` and what is no text stay."""
    return tuple(value.split("/")) if isinstance(value, str) and value != "tune" else value


Tune = Literal["tune"]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Weight = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(gt=0)]
ListOf = BeforeValidator(_split_list)
Rising = AfterValidator(_rising)


class Reading(Settings):
    """One reading of a memory; numbers to choose from are tuples, `tune` is the default grid."""

    sources: tuple[str, ...]
    """In the order local, long, external."""
    reader: str = "interpolate"
    similarity: Literal["dot", "scaled-dot", "l2"] | None = None
    """None: `scaled-dot` for a model trained by `trime*`; else the metric of the index, or `dot` without one."""
    key: Literal["hidden", "ffn-input"] | None = None
    """None: the key of the datastore; without one that of its training for `trime*`, else `hidden`."""
    temperature: Annotated[tuple[Positive, ...] | Tune, ListOf, Rising] | None = None
    """τ: scores are divided by it."""
    theta: Annotated[tuple[NotNegative, ...] | Tune, ListOf, Rising] | None = None
    """θ = 1/τ: scores are multiplied by it; 0 makes all entries equal."""
    weight: Annotated[tuple[Weight, ...] | Tune, ListOf, Rising] | None = Field(None, alias="lambda")
    """λ: weight of the memory (interpolate)."""
    alpha: Annotated[tuple[float, ...] | Tune, ListOf, Rising] = (0.0,)
    """α, in nats: added to the memory's scores, after temperature (joint)."""
    size: Annotated[tuple[Count, ...] | Tune, ListOf, Rising] | None = None
    """Positions back from the one that reads (long)."""
    scope: Literal["stream", "document"] = "stream"
    """Whether the past ends where the document of the position begins (long)."""
    k: Annotated[tuple[Count, ...] | Tune, ListOf, Rising] | None = None
    """Neighbours read (external); None: 1,024 or as many as there are."""
    exact: bool = False
    """Whether distances are recomputed from the stored keys (external)."""

    @model_validator(mode="after")
    def _fits_together(self) -> "Reading":
        if self.temperature is not None and self.theta is not None:
            raise ValueError("give temperature or theta, not both: theta is 1/temperature")
        if self.reader == "interpolate" and self.weight is None:
            raise ValueError("lambda is missing: give lambda=0.25, or lambda=tune")
        if "long" in self.sources and self.size is None:
            raise ValueError("size is missing: give size=2000, or size=tune")
        if {"long", "external"} <= set(self.sources) and (self.k == "tune" or len(self.k or ()) > 1):
            raise ValueError("k must be one number where long and external are joined: a choice is one of size")
        return self

    @property
    def reader_weight(self) -> tuple[float, ...] | Tune:
        """The reader's own number: λ of interpolate, α of joint."""
        if self.reader == "joint":
            return self.alpha
        assert self.weight is not None
        return self.weight

    @property
    def choices(self) -> list[str]:
        """The keys whose number is to be chosen on the tuning split."""
        numbers = {
            "temperature": self.temperature,
            "theta": self.theta,
            "lambda": self.weight,
            "alpha": self.alpha,
            "size": self.size,
            "k": self.k,
        }
        return [n for n, v in numbers.items() if v == "tune" or (v is not None and len(v) > 1)]

    def name(self, trained: bool) -> str:
        """What the papers call a reading of these sources by this reader; else the sources.

        Args:
            trained: whether the model was trained with memory.
        """
        name = row_name(self.sources, self.reader, trained)
        return name.replace("neural-cache", "unigram-cache") if self.theta == (0.0,) else name

    @property
    def spelled(self) -> str:
        """The one way to write this reading: keys in the order above, defaults left out."""
        given = self.model_dump(by_alias=True, exclude_defaults=True, exclude={"sources"})
        settings = [f"{key}={_spell(value)}" for key, value in given.items() if value is not None]
        return "+".join(self.sources) + (":" + ",".join(settings) if settings else "")


def parse_reading(spec: str) -> Reading:
    """The reading that a text describes; the names of rows are for `parse_readings`.

    Raises: UsageError that names the text and what is wrong with it.
    """
    phrase = parse_phrase(spec)
    try:
        return Reading.model_validate({"sources": phrase.sources, **phrase.settings})
    except ValidationError as error:
        raise UsageError(f"--memory {spec}: {_explain(error)}.") from None


def parse_readings(specs: tuple[str, ...]) -> tuple[Reading, ...]:
    """The readings of several `--memory` options, in order; `none` is the plain model, a name its readings.

    Raises: UsageError as `parse_reading`, for `none` beside another reading, and for a joint
        reading that is not the first: it needs the vocabulary's scores as the model gives them.
    """
    if NONE in specs and len(specs) > 1:
        raise UsageError("--memory none is the plain model and stands alone.")
    specs = tuple(one for spec in specs if spec != NONE for one in written_out(spec))
    readings = tuple(map(parse_reading, specs))
    for spec, reading in zip(specs[1:], readings[1:], strict=False):
        if reading.reader == "joint":
            raise UsageError(
                f"--memory {spec}: only the first reading may be joint, later ones have no scores of the vocabulary; "
                "put it first, or read with reader=interpolate."
            )
    return readings


def any_reads(readings: Iterable[Reading], source: str) -> bool:
    """Whether one of the readings looks into a source."""
    return any(source in reading.sources for reading in readings)


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(_spell(one) for one in value)
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _explain(error: ValidationError) -> str:
    """The first thing that is wrong, in a sentence."""
    first = error.errors()[0]
    place = next((str(part) for part in first["loc"]), "")
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if isinstance(first["input"], dict | Reading) else f" (given: {first['input']})"
    return f"{place}: {reason}{given}" if place else reason
