"""The text after `--memory`, `SOURCES[:key=value,…]` -> its sources and settings. Free of torch.

>>> parse_phrase("long+local:size=50,lambda=.1")
Phrase(sources=('local', 'long'), settings={'size': '50', 'lambda': '.1'})
>>> written_out("trime")
('local:similarity=scaled-dot,reader=joint,temperature=tune',)
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from stages.errors import UsageError, did_you_mean
from stages.memory.hyperparameter import Choice, Hyperparameter, ReadingOptions
from stages.memory.readers import READERS
from stages.registry import import_outside
from stages.retrieval.sources import SOURCES

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
TEMPERATURE = Hyperparameter("τ", "temperature τ", means="divides scores: the larger, the less the nearest count")
THETA = Hyperparameter("θ", means="multiplies scores: the larger, the more the nearest count")
Similarity = Literal["dot", "scaled-dot", "l2"]


MEANS = {
    "dot": "scores are inner products",
    "scaled-dot": "scores are inner products, divided by the square root of their dimensions",
    "l2": "scores are minus the squared distance",
    "hidden": "compared are the hidden states that the next token is predicted from",
    "ffn-input": "compared is what enters the last feed-forward layer",
}
"""How a reading compares, and what: the words of `similarity` and `key`."""


class Comparison(ReadingOptions):
    """How a position finds entries alike."""

    similarity: Similarity | None = None
    """None: `scaled-dot` for a model trained by `trime*`; else the metric of the index, or `dot` without one."""
    key: Literal["hidden", "ffn-input"] | None = None
    """None: the key of the datastore; without one that of its training for `trime*`, else `hidden`."""
    temperature: Annotated[Choice[Positive] | None, TEMPERATURE] = None
    """τ: scores are divided by it."""
    theta: Annotated[Choice[NotNegative] | None, THETA] = None
    """θ = 1/τ: scores are multiplied by it; 0 makes all entries equal."""


NONE = "none"
"""The plain model."""

LONG_SIZES = "128/256/512/1024/2048/4096/8192/12288"
"""Positions back that TRIME is tuned over, up to its best number on WikiText-103 (Zhong et al. 2022, Table 9)."""

TRAINED = "similarity=scaled-dot,reader=joint,temperature=tune"
"""How models trained with memory read it: as in training, but for τ."""

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
"""Rows of the papers' tables that have a name of their own, as readings on top of each other.

`knn-mt` is `knn-lm` of a model that translates.
"""


class Phrase(NamedTuple):
    """One reading as it was typed: sources in the order of `SOURCES`, values still text."""

    sources: tuple[str, ...]
    settings: dict[str, str]

    @property
    def reader(self) -> str:
        return self.settings.get("reader", default_reader())


def default_reader() -> str:
    """The reader of a reading that names none."""
    return READERS.names()[0]


def shared_keys() -> tuple[str, ...]:
    """Keys that every reading understands."""
    return ("reader", *Comparison.names())


def owners() -> dict[str, list[str]]:
    """Keys that only some sources or readers understand -> these."""
    found: dict[str, list[str]] = {}
    for registry in (READERS, SOURCES):
        for name in registry.names():
            for key in registry.settings(name).names():
                found.setdefault(key, []).append(name)
    return found


def written_out(spec: str) -> tuple[str, ...]:
    """The readings that the name of a row stands for; of what is no name, itself."""
    return NAMED.get(spec, (spec,))


def parse_phrase(spec: str) -> Phrase:
    """Parse a reading that is written out.

    Raises: UsageError that names the text and what is wrong with it: unknown names (the nearest
        known one is suggested), keys that belong elsewhere.
    """
    head, _, tail = spec.partition(":")
    import_outside()  # whose keys are legal, too
    owned = owners()
    sources, settings = tuple(head.split("+")), dict(_settings(spec, tail, (*shared_keys(), *owned)))
    for source in sources:
        _require_source(spec, source)
    if len(set(sources)) < len(sources):
        raise UsageError(f"--memory {spec}: a source is named twice in one reading.")
    phrase = Phrase(tuple(source for source in SOURCES.names() if source in sources), settings)
    if phrase.reader not in READERS:
        raise UsageError(
            f"--memory {spec}: no reader is called {phrase.reader!r}; {did_you_mean(phrase.reader, READERS.names())}"
        )
    for key in settings:
        if key in owned and not set(owned[key]) & {*sources, phrase.reader}:
            raise UsageError(f"--memory {spec}: {key!r} belongs to {' and '.join(map(repr, owned[key]))} alone.")
    return phrase


Kind = tuple[tuple[str, ...], str]
"""Sources and reader of a reading."""


def row_name(sources: tuple[str, ...], reader: str, trained: bool) -> str:
    """Name in the papers of a reading of these sources by this reader; else the sources.

    Args:
        trained: whether the model was trained with memory.
    """
    name = composition_name([(sources, reader)], trained)
    if name is not None:
        return name
    plain = composition_name([(sources, default_reader())], trained) or "+".join(sources)
    return plain if reader == default_reader() else f"{plain} ({reader})"


def composition_name(kinds: Sequence[Kind], trained: bool) -> str | None:
    """Name in the papers of readings of these kinds on top of each other; None: they have none.

    Args:
        trained: whether the model was trained with memory; only then are rows called after methods that train with it.
    """
    named = {
        tuple(map(_kind, specs)): name
        for name, specs in reversed(NAMED.items())
        if trained or not any(TRAINED in spec for spec in specs)
    }
    return named.get(tuple(kinds))


def _kind(spec: str) -> Kind:
    head, _, tail = spec.partition(":")
    return tuple(head.split("+")), dict(pair.split("=") for pair in tail.split(",")).get("reader", default_reader())


def _settings(spec: str, tail: str, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`a=1,b=2` -> ("a", "1"), ("b", "2")."""
    seen = set()
    for pair in tail.split(",") if tail else ():
        key, equals, value = pair.partition("=")
        if key not in known:
            raise UsageError(f"--memory {spec}: unknown key {key!r}; {did_you_mean(key, known)}")
        if not equals or not value:
            raise UsageError(f"--memory {spec}: {key!r} has no value; write {key}=VALUE.")
        if key in seen:
            raise UsageError(f"--memory {spec}: {key!r} is given twice.")
        seen.add(key)
        yield key, value


def _require_source(spec: str, name: str) -> None:
    """Refuse what is no source; of the names of rows, which stand alone, say what they stand for."""
    if name in SOURCES:
        return
    if name in NAMED:
        meaning = " --memory ".join(NAMED[name])
        raise UsageError(
            f"--memory {spec}: {name!r} stands for {meaning}; write that out to change it{_suggestion(spec)}."
        )
    others = (*SOURCES.names(), *NAMED, NONE) if name != NONE else SOURCES.names()
    raise UsageError(f"--memory {spec}: no source is called {name!r}; {did_you_mean(name, others)}")


def _suggestion(spec: str) -> str:
    """Write out a row's name with keys of its own; empty where it stands for several readings."""
    name, _, tail = spec.partition(":")
    if len(NAMED[name]) != 1 or not tail:
        return ""
    sources, _, own = NAMED[name][0].partition(":")
    keys = dict(pair.partition("=")[::2] for pair in f"{own},{tail}".split(",") if pair)
    return f": --memory {sources}:{','.join(f'{key}={value}' for key, value in keys.items())}"
