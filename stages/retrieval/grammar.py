"""Parsing of `--memory SOURCES[:key=value,…]` into readings; and the papers' names for them. Free
of torch.

>>> parse_reading("long+local:size=50,lambda=.1").sources
('local', 'long')
>>> NAMED["trime"]
('local:similarity=scaled-dot,reader=joint,temperature=tune',)
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, TypeVar

from pydantic import ValidationError

from stages.errors import UsageError, did_you_mean
from stages.memory.hyperparameter import ReadingOptions
from stages.memory.readers import READERS
from stages.registry import import_outside, near_part
from stages.retrieval.reading import Comparison, Reading, default_reader
from stages.retrieval.registries import SOURCES

K = TypeVar("K", bound=ReadingOptions)
LARGEST_GRID = 1 << 20
"""Maximum number of points of one reading's grid: every shard keeps its sums over the tuning split.
"""

NONE = "none"
"""The plain model."""

DYNAMIC = "dynamic"
"""Dynamic evaluation, which is no source: `stages.adaptation` has its keys."""

LONG_SIZES = "128/256/512/1024/2048/4096/8192/12288"
"""Positions back that TRIME is tuned over, up to its best number on WikiText-103 (Zhong et al.
2022, Table 9).
"""

TRAINED = "similarity=scaled-dot,reader=joint,temperature=tune"
"""Readings of models trained with memory: as in training, except for τ."""

KNN = ("external:temperature=tune,lambda=tune",)
NAMED = {
    "knn-lm": KNN,
    "knn-mt": KNN,
    "neural-cache": ("long:size=tune,theta=tune,lambda=tune",),
    "exact": ("exact:temperature=tune,lambda=length",),
    "exact-stream": ("exact-stream:temperature=tune,lambda=length",),
    "trime": (f"local:{TRAINED}",),
    "trime-long": (f"local+long:size={LONG_SIZES},{TRAINED}",),
    "trime-ext": (
        f"local+long+external:size={LONG_SIZES},{TRAINED}",
        "external:similarity=dot,temperature=tune,lambda=tune",
    ),
}
"""Named methods of the papers' tables, as readings on top of each other.

`knn-mt` is `knn-lm` for a translation model.
"""


def owners() -> dict[str, list[str]]:
    """Keys that only some sources or readers have -> those sources and readers."""
    owners_of_key: dict[str, list[str]] = {}
    for registry in (READERS, SOURCES):
        for name in registry.names():
            for key in registry.settings(name).names():
                owners_of_key.setdefault(key, []).append(name)
    return owners_of_key


def parse_reading(spec: str) -> Reading:
    """The reading that a text describes; `parse_readings` also takes the papers' names.

    Raises: UsageError that names the text and what is wrong with it: unknown names (the nearest
        known one is suggested), keys that belong elsewhere, values that are not legal.

    >>> reading = parse_reading("long:size=200/100,lambda=.10,scope=stream")
    >>> reading.value("size"), reading.weight, reading.choices
    ((100, 200), (0.1,), ['size'])
    >>> reading.spelled
    'long:lambda=0.1,size=100/200'
    >>> parse_reading("external:lambda=tune").comparison.temperature
    'tune'
    """
    head, _, tail = spec.partition(":")
    import_outside()  # plugins' keys are legal, too
    owned = owners()
    named = head.split("+")
    for source in named:
        _require_source(spec, source)
    settings = dict(key_values(spec, tail, ("reader", *Comparison.names(), *owned)))
    if len(set(named)) < len(named):
        raise UsageError(f"--memory {spec}: a source is named twice in one reading.")
    reader = settings.get("reader", default_reader())
    if reader not in READERS:
        raise UsageError(
            f"--memory {spec}: no reader is called {reader!r}; {near_part(reader, READERS.names())}"
        )
    for key in settings:
        if key in owned and not set(owned[key]) & {*named, reader}:
            raise UsageError(
                f"--memory {spec}: {key!r} belongs to {' and '.join(map(repr, owned[key]))} alone."
            )
    try:
        reading = make_reading(named, reader, settings)
    except ValidationError as error:
        raise UsageError(f"--memory {spec}: {explained(error)}.") from None
    require_few_points(reading)
    return reading


@cache
def parse_readings(specs: tuple[str, ...]) -> tuple[Reading, ...]:
    """The readings of several `--memory` options, in order; `none` is the plain model.

    Raises: UsageError as `parse_reading`; for `none` with another reading; for a joint reading that
        is not the first, since it needs the model's own scores of the vocabulary; for a learned
        weight that is not the last reading's; and for `searched` in a reading that is not alone.
    """
    if NONE in specs and len(specs) > 1:
        raise UsageError("--memory none is the plain model and stands alone.")
    # a paper's name stands for one reading or more
    specs = tuple(part for spec in specs if spec != NONE for part in NAMED.get(spec, (spec,)))
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
        for settings in reading.source_settings:
            reason = settings.reason_alone()
            is_alone = len(readings) == 1 and len(reading.sources) == 1
            if reason is not None and not is_alone:
                raise UsageError(f"--memory {spec}: {reason}.")
    return readings


Kind = tuple[tuple[str, ...], str]
"""Sources and reader of a reading."""


def reading_name(reading: Reading, trained: bool) -> str:
    """The papers' name for a reading, else its sources; a cache that ignores the keys has its own
    name.

    Args:
        trained: whether the model was trained with memory.
    """
    name = composition_name([(reading.sources, reading.reader)], trained)
    if name is None:
        name = composition_name([(reading.sources, default_reader())], trained) or "+".join(
            reading.sources
        )
        name += "" if reading.reader == default_reader() else f" ({reading.reader})"
    return (
        name.replace("neural-cache", "unigram-cache")
        if reading.comparison.theta == (0.0,)
        else name
    )


def composition_name(kinds: Sequence[Kind], trained: bool) -> str | None:
    """The papers' name for readings of these kinds on top of each other; None: they have none.

    Args:
        trained: whether the model was trained with memory; only then are rows called after methods
        that train with it.
    """
    # the first of several names of the same readings counts
    for name, specs in NAMED.items():
        if not trained and any(TRAINED in spec for spec in specs):
            continue
        readings = parse_readings((name,))
        if [(reading.sources, reading.reader) for reading in readings] == list(kinds):
            return name
    return None


def shortest(reading: Reading) -> str:
    """The shortest way to type a reading: the name of a row that it is part of, else as it is
    spelled.

    >>> shortest(parse_reading("external:lambda=tune"))
    'knn-lm'
    """
    spelled = reading.spelled
    named = ((name, parse_reading(spec).spelled) for name, specs in NAMED.items() for spec in specs)
    return next((name for name, other in named if other == spelled), spelled)


# What is wrong with a text


def require_few_points(reading: Reading) -> None:
    """Refuse a grid with too many points to compute.

    Raises: UsageError naming the numbers of candidates.
    """
    counts = {}
    for name in reading.tunable:
        values = reading.value(name)
        if isinstance(values, tuple):
            counts[name] = len(values)

    num_points = prod(counts.values())
    if num_points > LARGEST_GRID:
        sizes = " x ".join(f"{count:,} of {name}" for name, count in counts.items() if count > 1)
        raise UsageError(
            f"--memory {'+'.join(reading.sources)}: a grid of {num_points:,} points ({sizes}); at most "
            f"{LARGEST_GRID:,} are tuned in one go: give fewer numbers, and refine about the best."
        )


def make_reading(sources: Sequence[str], reader: str, settings: Mapping[str, Any]) -> Reading:
    """A reading of these sources, from values of its keys.

    Raises: pydantic's ValidationError for values that are not legal.
    """
    ordered = tuple(source for source in SOURCES.names() if source in sources)
    return _checked(ordered, reader, settings)


def _checked(sources: tuple[str, ...], reader: str, settings: Mapping[str, Any]) -> Reading:
    """A reading, with temperature `tune` if its weight is left open and neither τ nor θ is given.

    The best weight depends on the temperature: at τ = 1 the nearest neighbour takes nearly all
    weight in most models.
    """

    def parsed(keys: type[K]) -> K:
        return keys.model_validate(keys.select(settings))

    reading = Reading(
        sources=sources,
        reader=reader,
        comparison=parsed(Comparison),
        reader_settings=parsed(READERS.settings(reader)),
        source_settings=tuple(parsed(SOURCES.settings(source)) for source in sources),
    )
    is_open = isinstance(reading.reader_settings.weight, str)
    if is_open and (reading.comparison.temperature, reading.comparison.theta) == (None, None):
        return reading.changed({"temperature": "tune"})
    return reading


def key_values(spec: str, tail: str, legal_keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`a=1,b=2` -> ("a", "1"), ("b", "2")."""
    earlier_keys = set()
    for pair in tail.split(",") if tail else ():
        key, equals, value = pair.partition("=")
        if key not in legal_keys:
            raise UsageError(
                f"--memory {spec}: unknown key {key!r}; {did_you_mean(key, legal_keys)}"
            )
        if not equals or not value:
            raise UsageError(f"--memory {spec}: {key!r} has no value; write {key}=VALUE.")
        if key in earlier_keys:
            raise UsageError(f"--memory {spec}: {key!r} is given twice.")
        earlier_keys.add(key)
        yield key, value


def _require_source(spec: str, name: str) -> None:
    """Refuse unknown sources; for the papers' names, which must stand alone, say what they stand
    for.
    """
    if name in SOURCES:
        return
    if name in NAMED:
        meaning = " --memory ".join(NAMED[name])
        raise UsageError(
            f"--memory {spec}: {name!r} stands for {meaning}; write that out to change it{_suggestion(spec)}."
        )
    if name == DYNAMIC:
        raise UsageError(
            f"--memory {spec}: dynamic changes the model itself, so it stands first and alone; "
            "only evaluate reads it."
        )
    others = (*SOURCES.names(), *NAMED, NONE) if name != NONE else SOURCES.names()
    raise UsageError(f"--memory {spec}: no source is called {name!r}; {near_part(name, others)}")


def _suggestion(spec: str) -> str:
    """Spell out a paper's name, with its keys, as a reading; empty if it stands for several
    readings.
    """
    name, _, tail = spec.partition(":")
    if len(NAMED[name]) != 1 or not tail:
        return ""
    sources, _, default_keys = NAMED[name][0].partition(":")

    # a key of the command takes the place of a default
    values = {}
    for pair in f"{default_keys},{tail}".split(","):
        if pair:
            key, _, value = pair.partition("=")
            values[key] = value
    keys = ",".join(f"{key}={value}" for key, value in values.items())
    return f": --memory {sources}:{keys}"


def explained(error: ValidationError) -> str:
    """The first error of a validation, in a sentence."""
    first = error.errors()[0]
    place = next((str(part) for part in first["loc"]), "")
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    value_text = "" if isinstance(first["input"], dict | Reading) else f" (given: {first['input']})"
    return f"{place}: {reason}{value_text}" if place else reason
