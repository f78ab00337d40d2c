"""One reading of a memory with all its settings, checked. Free of torch."""

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, Self, TypeVar

from pydantic import SerializeAsAny, ValidationError, model_validator

from stages.config import Settings
from stages.errors import UsageError, did_you_mean
from stages.memory.hyperparameter import Hyperparameter, ReadingOptions, Tune
from stages.memory.readers import READERS
from stages.memory.readers.settings import ReaderSettings
from stages.retrieval.grammar import (
    NAMED,
    NONE,
    Comparison,
    Phrase,
    Similarity,
    default_reader,
    parse_phrase,
    row_name,
    written_out,
)
from stages.retrieval.sources import SOURCES
from stages.retrieval.sources.settings import SourceSettings
from stages.retrieval.weights import typed_policies

K = TypeVar("K", bound=ReadingOptions)
LARGEST_GRID = 1 << 20
"""Maximum number of points of one reading's grid: every shard keeps its sums over the tuning split."""


class Reading(Settings):
    """One reading of a memory; numbers to choose from are tuples, `tune` is the default grid."""

    sources: tuple[str, ...]
    """In the order of `SOURCES`."""
    reader: str
    comparison: Comparison
    reader_settings: SerializeAsAny[ReaderSettings]
    source_settings: tuple[SerializeAsAny[SourceSettings], ...]
    """Settings of each source, in their order."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.temperature is not None and self.theta is not None:
            raise ValueError("give temperature or theta, not both: theta is 1/temperature")
        for name, number in self.tunable.items():
            if number.example and self.value(name) is None:
                raise ValueError(f"{name} is missing: give {name}={number.example}, or {name}=tune")
        if self.per_context and self.weight not in typed_policies():
            known = did_you_mean(str(self.weight), ["tune", *typed_policies()])
            raise ValueError(f"{self.weight_name} has no value {self.weight!r} but numbers; {known}")
        if self.weight == "length" and any(settings.compares_keys for settings in self.source_settings):
            raise ValueError(f"{self.weight_name}=length is of exact and exact-stream: only they find matches")
        if self.searched < 1 and (self.weight != "learned" or len(self.sources) > 1):
            raise ValueError(
                f"searched is of external alone, with {self.weight_name}=learned: both are learned together"
            )
        if self.value("pointers") and (self.searched < 1 or len(self.sources) > 1):
            raise ValueError("pointers are of external alone, without searched: both say when to search")
        self._require_one_amount()
        return self

    def _require_one_amount(self) -> None:
        """Raises: ValueError if a source other than the first of several has a choice of amounts."""
        pairs = zip(self.sources, self.source_settings, strict=True)
        limited = [(source, settings.amount) for source, settings in pairs if settings.amount in settings.names()]
        for source, name in limited[1:]:
            if self.value(name) == "tune" or len(self.value(name) or ()) > 1:
                raise ValueError(
                    f"{name} must be one number where {limited[0][0]} and {source} are joined: "
                    f"a choice is one of {limited[0][1]}"
                )

    # Options

    @property
    def parts(self) -> tuple[ReadingOptions, ...]:
        """All its keys, in the order in which they are spelled."""
        return self.comparison, self.reader_settings, *self.source_settings

    @property
    def tunable(self) -> dict[str, Hyperparameter]:
        """The keys whose value is a number that may be chosen."""
        return {name: number for part in self.parts for name, number in part.hyperparameters().items()}

    @property
    def choices(self) -> list[str]:
        """The keys whose number is to be chosen, or learned, on the tuning split."""
        numbers = {name: self.value(name) for name in self.tunable}
        return [name for name, v in numbers.items() if isinstance(v, str) or (v is not None and len(v) > 1)]

    def value(self, key: str) -> Any:
        """The value of a key; None where it has none, or the reading does not understand it."""
        return next((part.value(key) for part in self.parts if key in part.names()), None)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """The same with other values of some keys, which are not checked; other readings' keys are lost."""
        comparison, reader, *sources = (part.changed(part.own(values)) for part in self.parts)
        parts = {"comparison": comparison, "reader_settings": reader, "source_settings": tuple(sources)}
        return self.model_copy(update=parts)

    @property
    def similarity(self) -> Similarity | None:
        """How queries and keys are compared."""
        return self.comparison.similarity

    @property
    def key(self) -> str | None:
        """The representation that is compared."""
        return self.comparison.key

    @property
    def temperature(self) -> tuple[float, ...] | Tune | None:
        """τ."""
        return self.comparison.temperature

    @property
    def theta(self) -> tuple[float, ...] | Tune | None:
        """θ."""
        return self.comparison.theta

    @property
    def weight_name(self) -> str:
        """The key of the reader's own number: `lambda` of interpolate, `alpha` of joint."""
        return next(iter(self.reader_settings.hyperparameters()))

    @property
    def weight(self) -> tuple[float, ...] | str:
        """The reader's own number: values to choose from, `tune`, or the policy that gives one for each context."""
        assert self.reader_settings.weight is not None
        return self.reader_settings.weight

    @property
    def per_context(self) -> bool:
        """Whether the reader's own number is another for each context."""
        return isinstance(self.reader_settings.weight, str) and self.reader_settings.weight != "tune"

    @property
    def policy(self) -> str:
        """The name in `WEIGHTS` of how its weight is found where a split is tuned on."""
        if self.searched < 1:
            return "searched"
        return str(self.weight) if self.per_context else "grid"

    @property
    def searched(self) -> float:
        """Share of the tuning split's tokens that are searched for."""
        return self.value("searched") or 1.0

    @property
    def leaves_searches_out(self) -> bool:
        """Whether some tokens are not searched for."""
        return self.searched < 1 or self.value("pointers") is not None

    def with_tuned_weight(self) -> Self:
        """The same with the default grid of the reader's own number: one for all contexts."""
        return self.changed({self.weight_name: self.tunable[self.weight_name].grid})

    @property
    def scale_name(self) -> str:
        """The key of the factor of scores: `temperature`, or `theta`."""
        return "temperature" if self.theta is None else "theta"

    # What an evaluation must know

    def _any(self, name: str) -> bool:
        return any(getattr(settings, name) for settings in self.source_settings)

    @property
    def reads_datastore(self) -> bool:
        """Whether it looks into a datastore."""
        return self._any("reads_datastore")

    @property
    def reads_pairs(self) -> bool:
        """Whether it reads the tokens of pairs that are found for a sentence."""
        return self._any("reads_pairs")

    @property
    def reads_text(self) -> bool:
        """Whether it looks into the text of an exact index."""
        return self._any("reads_text")

    @property
    def compares_keys(self) -> bool:
        """Whether representations are compared; else all scores are lengths of matches."""
        return self._any("compares_keys")

    @property
    def reads_windows(self) -> bool:
        """Whether it matters where the windows or segments of a split begin."""
        return self._any("reads_windows")

    @property
    def neighbors(self) -> int:
        """The most neighbours that are read; 0 for none. Of a completed reading."""
        found = (s.value(s.amount) for s in self.source_settings if s.reads_datastore or s.reads_pairs)
        return max((max(k) for k in found if isinstance(k, tuple)), default=0)

    # Texts

    def name(self, trained: bool) -> str:
        """Name in the papers of a reading of these sources by this reader; else the sources.

        Args:
            trained: whether the model was trained with memory.
        """
        name = row_name(self.sources, self.reader, trained)
        return name.replace("neural-cache", "unigram-cache") if self.theta == (0.0,) else name

    @property
    def shortest(self) -> str:
        """The shortest way to type it: the name of a row that it is part of, else as it is spelled.

        >>> parse_reading("external:lambda=tune").shortest
        'knn-lm'
        """
        spelled = self.spelled
        named = ((name, parse_reading(spec).spelled) for name, specs in NAMED.items() for spec in specs)
        return next((name for name, other in named if other == spelled), spelled)

    @property
    def spelled(self) -> str:
        """The one way to write this reading: keys in their order, defaults left out."""
        given = {} if self.reader == default_reader() else {"reader": self.reader}
        for part in self.parts:
            given |= part.model_dump(by_alias=True, exclude_defaults=True)
        settings = [f"{key}={_spell(value)}" for key, value in given.items() if value is not None]
        return "+".join(self.sources) + (":" + ",".join(settings) if settings else "")


def parse_reading(spec: str) -> Reading:
    """The reading that a text describes; the names of rows are for `parse_readings`.

    Raises: UsageError that names the text and what is wrong with it.

    >>> reading = parse_reading("long:size=200/100,lambda=.10,scope=stream")
    >>> reading.value("size"), reading.weight, reading.choices
    ((100, 200), (0.1,), ['size'])
    >>> reading.spelled
    'long:lambda=0.1,size=100/200'
    >>> parse_reading("external:lambda=tune").temperature
    'tune'
    """
    phrase = parse_phrase(spec)
    try:
        reading = _checked(phrase)
    except ValidationError as error:
        raise UsageError(f"--memory {spec}: {_explain(error)}.") from None
    _require_few_points(reading)
    return reading


def _require_few_points(reading: Reading) -> None:
    """Raises: UsageError for a grid whose sums nobody lives to see."""
    numbers = {name: reading.value(name) for name in reading.tunable}
    counts = {name: len(values) for name, values in numbers.items() if isinstance(values, tuple)}
    if prod(counts.values()) > LARGEST_GRID:
        sizes = " x ".join(f"{count:,} of {name}" for name, count in counts.items() if count > 1)
        raise UsageError(
            f"--memory {'+'.join(reading.sources)}: a grid of {prod(counts.values()):,} points ({sizes}); at most "
            f"{LARGEST_GRID:,} are tuned in one go: give fewer numbers, and refine about the best."
        )


def _checked(phrase: Phrase) -> Reading:
    """With temperature `tune`, if its weight is left open and neither τ nor θ is given.

    The best weight depends on the temperature: at τ = 1 the nearest neighbour of most models takes nearly all.
    """

    def parsed(keys: type[K]) -> K:
        return keys.model_validate(keys.own(phrase.settings))

    reading = Reading(
        sources=phrase.sources,
        reader=phrase.reader,
        comparison=parsed(Comparison),
        reader_settings=parsed(READERS.settings(phrase.reader)),
        source_settings=tuple(parsed(SOURCES.settings(source)) for source in phrase.sources),
    )
    is_open = isinstance(reading.reader_settings.weight, str)
    if is_open and (reading.temperature, reading.theta) == (None, None):
        return reading.changed({"temperature": "tune"})
    return reading


@cache
def parse_readings(specs: tuple[str, ...]) -> tuple[Reading, ...]:
    """The readings of several `--memory` options, in order; `none` is the plain model, a name its readings.

    Raises: UsageError as `parse_reading`, for `none` beside another reading, for a joint
        reading that is not the first: it needs the vocabulary's scores as the model gives them, for
        a learned weight of one that is not the last, and for `searched` of one that is not alone.
    """
    if NONE in specs and len(specs) > 1:
        raise UsageError("--memory none is the plain model and stands alone.")
    specs = tuple(one for spec in specs if spec != NONE for one in written_out(spec))
    readings = tuple(map(parse_reading, specs))
    for spec, reading in zip(specs[1:], readings[1:], strict=False):
        if reading.reader_settings.needs_scores:
            raise UsageError(
                f"--memory {spec}: only the first reading may be {reading.reader}, later ones have no scores of the "
                f"vocabulary; put it first, or read with reader={default_reader()}."
            )
    for spec, reading in zip(specs, readings[:-1], strict=False):
        if reading.per_context:
            raise UsageError(
                f"--memory {spec}: only the last reading may learn its {reading.weight_name}: put it last, or give "
                f"{reading.weight_name}=tune."
            )
    for spec, reading in zip(specs, readings, strict=True):
        if reading.leaves_searches_out and len(readings) > 1:
            raise UsageError(f"--memory {spec}: a reading that leaves searches out (searched, pointers) stands alone.")
        if reading.reads_pairs and len(readings) + len(reading.sources) > 2:
            raise UsageError(f"--memory {spec}: similar-pairs stands alone: no search finds other neighbours beside.")
    return readings


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
