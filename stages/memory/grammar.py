"""The text after `--memory`, `SOURCES[:key=value,…]` -> its sources and settings. Free of torch."""

from typing import NamedTuple

from stages.errors import UsageError, did_you_mean
from stages.memory import READERS, SOURCES

NONE = "none"
"""The plain model."""

NAMED = {
    "knn-lm": "external:temperature=tune,lambda=tune",
    "neural-cache": "long:size=tune,theta=tune,lambda=tune",
    "trime": "local:reader=joint,temperature=tune",
    "trime-long": "local+long:size=tune,reader=joint,temperature=tune",
    "trime-ext": "local+long+external:size=tune,similarity=scaled-dot,reader=joint,temperature=tune",
}
"""Rows of the papers' tables that have a name of their own."""

SHARED = ("reader", "similarity", "key", "temperature", "theta")
"""Keys that every reading understands."""

OWNERS = {
    "lambda": "interpolate",
    "alpha": "joint",
    "size": "long",
    "scope": "long",
    "k": "external",
    "exact": "external",
}
"""Keys that only one source or reader understands."""


class Phrase(NamedTuple):
    """One reading as it was typed: sources in the order of the registry, values still text."""

    sources: tuple[str, ...]
    settings: dict[str, str]

    @property
    def reader(self) -> str:
        return self.settings.get("reader", "interpolate")


def parse_phrase(spec: str) -> Phrase:
    """What a text, or the name of a row, asks for.

    Raises: UsageError that names the text and what is wrong with it: unknown names (the nearest
        known one is suggested), keys that belong elsewhere, sources that do not go together yet.
    """
    head, _, tail = NAMED.get(spec, spec).partition(":")
    sources, settings = tuple(head.split("+")), _settings(spec, tail)
    for source in sources:
        _require_source(spec, source)
    if len(set(sources)) < len(sources):
        raise UsageError(f"--memory {spec}: a source is named twice in one reading.")
    if "external" in sources and len(sources) > 1:
        raise UsageError(
            f"--memory {spec}: this version does not join 'external' to other sources yet; it reads "
            "local, long, local+long or external, and one --memory on top of another."
        )
    phrase = Phrase(tuple(source for source in SOURCES.names() if source in sources), settings)
    if phrase.reader not in READERS:
        raise UsageError(
            f"--memory {spec}: no reader is called {phrase.reader!r}; {did_you_mean(phrase.reader, READERS.names())}"
        )
    for key in settings:
        if key in OWNERS and OWNERS[key] not in (*sources, phrase.reader):
            raise UsageError(f"--memory {spec}: {key!r} belongs to {OWNERS[key]!r} alone.")
    return phrase


def row_name(sources: tuple[str, ...], reader: str) -> str:
    """What the papers call a reading of these sources by this reader; else the sources."""
    kinds = {_kind(spec): name for name, spec in NAMED.items()}
    if (sources, reader) in kinds:
        return kinds[sources, reader]
    plain = kinds.get((sources, "interpolate"), "+".join(sources))
    return plain if reader == "interpolate" else f"{plain} ({reader})"


def _kind(spec: str) -> tuple[tuple[str, ...], str]:
    """Sources and reader of a named row."""
    head, _, tail = spec.partition(":")
    return tuple(head.split("+")), _settings(spec, tail).get("reader", "interpolate")


def _settings(spec: str, tail: str) -> dict[str, str]:
    """`a=1,b=2` -> {"a": "1", "b": "2"}."""
    known = (*SHARED, *OWNERS)
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


def _require_source(spec: str, name: str) -> None:
    """Refuse what is no source; of the names of rows, which stand alone, say what they stand for."""
    if name in SOURCES:
        return
    if name in NAMED:
        raise UsageError(f"--memory {spec}: {name!r} stands for {NAMED[name]}; write that out to change it.")
    others = (*SOURCES.names(), *NAMED, NONE) if name != NONE else SOURCES.names()
    raise UsageError(f"--memory {spec}: no source is called {name!r}; {did_you_mean(name, others)}")
