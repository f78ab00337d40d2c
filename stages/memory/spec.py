"""What a user types after `--memory`: `SOURCES[:key=value,…]` -> one checked reading. Free of torch."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from stages.config import Settings
from stages.errors import UsageError, did_you_mean
from stages.memory import READERS, SOURCES

NONE = "none"
"""The plain model."""

NAMED = {
    "knn-lm": "external:temperature=tune,lambda=tune",
    "neural-cache": "long:size=tune,theta=tune,lambda=tune",
    "trime": "local:reader=joint,temperature=tune",
    "trime-long": "local+long:size=tune,reader=joint,temperature=tune",
    "trime-ext": "local+long+external:similarity=scaled-dot,reader=joint,temperature=tune",
}
"""Rows of the papers' tables that have a name of their own."""

CONTRACT_SOURCES = ("local", "long", "external")
CONTRACT_READERS = ("interpolate", "joint")

OWNERS = {
    "lambda": "interpolate",
    "alpha": "joint",
    "size": "long",
    "scope": "long",
    "k": "external",
    "exact": "external",
}
"""Keys that only one source or reader understands."""


def _split_list(value: Any) -> Any:
    """`0.1/0.2` -> ("0.1", "0.2"); `tune` and what is no text stay."""
    return tuple(value.split("/")) if isinstance(value, str) and value != "tune" else value


Tune = Literal["tune"]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Weight = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(gt=0)]
ListOf = BeforeValidator(_split_list)


class Reading(Settings):
    """One reading of a memory; numbers to choose from are tuples, `tune` is the default grid."""

    sources: tuple[str, ...]
    reader: str = "interpolate"
    similarity: Literal["dot", "scaled-dot", "l2"] | None = None
    """None: the metric of the index."""
    key: Literal["hidden", "ffn-input"] | None = None
    """None: the key of the datastore."""
    temperature: Annotated[tuple[Positive, ...] | Tune, ListOf] | None = None
    """τ: scores are divided by it."""
    theta: Annotated[tuple[NotNegative, ...] | Tune, ListOf] | None = None
    """θ = 1/τ: scores are multiplied by it; 0 makes all cells equal."""
    weight: Annotated[tuple[Weight, ...] | Tune, ListOf] | None = Field(None, alias="lambda")
    """λ: weight of the memory."""
    k: Annotated[tuple[Count, ...] | Tune, ListOf] | None = None
    """Neighbours read; None: 1,024 or as many as there are."""
    exact: bool = False
    """Whether distances are recomputed from the stored keys."""

    @model_validator(mode="after")
    def _fits_together(self) -> "Reading":
        if self.temperature is not None and self.theta is not None:
            raise ValueError("give temperature or theta, not both: theta is 1/temperature")
        if self.reader == "interpolate" and self.weight is None:
            raise ValueError("lambda is missing: give lambda=0.25, or lambda=tune")
        return self

    @property
    def choices(self) -> list[str]:
        """The keys whose number is to be chosen on the tuning split."""
        numbers = {
            "temperature": self.temperature,
            "theta": self.theta,
            "lambda": self.weight,
            "k": self.k,
        }
        return [n for n, v in numbers.items() if v == "tune" or (v is not None and len(v) > 1)]

    @property
    def name(self) -> str:
        """What the papers call a reading of these sources by this reader; else the sources."""
        named = (name for name, spec in NAMED.items() if _kind(spec) == (self.sources, self.reader))
        return next(named, "+".join(self.sources))

    @property
    def spelled(self) -> str:
        """The one way to write this reading: keys in the order above, defaults left out."""
        given = self.model_dump(by_alias=True, exclude_defaults=True, exclude={"sources"})
        settings = [f"{key}={_spell(value)}" for key, value in given.items() if value is not None]
        return "+".join(self.sources) + (":" + ",".join(settings) if settings else "")


def _kind(spec: str) -> tuple[tuple[str, ...], str]:
    """Sources and reader of a text."""
    head, _, tail = spec.partition(":")
    return tuple(head.split("+")), _settings(spec, tail).get("reader", "interpolate")


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(_spell(one) for one in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def parse_reading(spec: str) -> Reading:
    """The reading that a text describes.

    Raises: UsageError that names the text and what is wrong with it: unknown names (the nearest
        known one is suggested), illegal values, and what this version does not have yet.
    """
    head, _, tail = NAMED.get(spec, spec).partition(":")
    sources = tuple(head.split("+"))
    settings = _settings(spec, tail)
    reader = settings.get("reader", "interpolate")
    for source in sources:
        _require(spec, "source", source, (*CONTRACT_SOURCES, *NAMED, NONE), SOURCES.names())
    _require(spec, "reader", reader, CONTRACT_READERS, READERS.names())
    if len(set(sources)) < len(sources):
        raise UsageError(f"--memory {spec}: a source is named twice in one reading.")
    for key in settings:
        if key in OWNERS and OWNERS[key] not in (*sources, reader):
            raise UsageError(f"--memory {spec}: {key!r} belongs to {OWNERS[key]!r} alone.")
    try:
        return Reading.model_validate({"sources": sources, **settings})
    except ValidationError as error:
        raise UsageError(f"--memory {spec}: {_explain(error)}.") from None


def parse_readings(specs: tuple[str, ...]) -> tuple[Reading, ...]:
    """The readings of several `--memory` options, in order; `none` is the plain model.

    Raises: UsageError as `parse_reading`, and for `none` beside another reading.
    """
    if NONE in specs and len(specs) > 1:
        raise UsageError("--memory none is the plain model and stands alone.")
    return tuple(parse_reading(spec) for spec in specs if spec != NONE)


def _settings(spec: str, tail: str) -> dict[str, str]:
    """`a=1,b=2` -> {"a": "1", "b": "2"}."""
    known = ("reader", "similarity", "key", "temperature", "theta", *OWNERS)
    settings: dict[str, str] = {}
    for pair in tail.split(",") if tail else ():
        key, equals, value = pair.partition("=")
        if key not in known:
            raise UsageError(f"--memory {spec}: unknown key {key!r}; {did_you_mean(key, known)}")
        if not equals or not value:
            raise UsageError(f"--memory {spec}: {key!r} has no value; write {key}=VALUE.")
        if key in settings:
            raise UsageError(f"--memory {spec}: {key!r} is given twice.")
        settings[key] = value
    return settings


def _require(spec: str, what: str, name: str, known: tuple[str, ...], built: list[str]) -> None:
    """Refuse a name that does not exist, and one that this version does not have yet."""
    if name in built:
        return
    if name in known and name not in (NONE, *NAMED):
        raise UsageError(
            f"--memory {spec}: this version does not have the {what} {name!r} yet; it has: {', '.join(built)}."
        )
    others = [other for other in known if other != name]
    raise UsageError(f"--memory {spec}: no {what} is called {name!r}; {did_you_mean(name, others)}")


def _explain(error: ValidationError) -> str:
    """The first thing that is wrong, in a sentence."""
    first = error.errors()[0]
    place = next((str(part) for part in first["loc"]), "")
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if isinstance(first["input"], dict | Reading) else f" (given: {first['input']})"
    return f"{place}: {reason}{given}" if place else reason
