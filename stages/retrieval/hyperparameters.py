"""Hyperparameters of readings, as sources and readers declare them, and their names in tables. Free
of torch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.memory.hyperparameter import Hyperparameter
from stages.memory.readers import READERS
from stages.numbers import number
from stages.retrieval.reading import Comparison
from stages.retrieval.registries import SOURCES


def amounts() -> dict[str, Hyperparameter]:
    """Hyperparameters for the amount that is read of a source."""
    sources = map(SOURCES.settings, SOURCES.names())
    return {name: number for source in sources for name, number in source.hyperparameters().items()}


def hyperparameters() -> dict[str, Hyperparameter]:
    """All hyperparameters by their names in reports, in the order of tables: amount, scale, weight."""
    sources = map(SOURCES.settings, SOURCES.names())
    reported = {name: number for source in sources for name, number in source.reported.items()}
    return amounts() | reported | settable()


def settable() -> dict[str, Hyperparameter]:
    """Hyperparameters that `--memory` takes, by name."""
    readers = map(READERS.settings, READERS.names())
    weights = {
        name: number for reader in readers for name, number in reader.hyperparameters().items()
    }
    return amounts() | Comparison.hyperparameters() | weights


def memory_words(readings: Iterable[Sequence[str]]) -> list[str]:
    """Short name of each reading's sources: `datastore`, `cache`; numbered if two are the same.

    >>> memory_words([["external"], ["long"]]), memory_words([["local", "long"], ["long"], ["long"]])
    (['datastore', 'cache'], ['window+cache', 'cache 1', 'cache 2'])
    """
    names = []
    for sources in readings:
        words = [SOURCES.settings(source).word for source in sources]
        names.append("+".join(words))

    totals = Counter(names)
    counts = Counter[str]()
    for index, name in enumerate(names):
        counts[name] += 1
        if totals[name] > 1:
            names[index] = f"{name} {counts[name]}"
    return names


def quotes(sources: Iterable[str]) -> bool:
    """Whether entries of some of these sources can be quoted.

    >>> quotes(["external"]), quotes(["decoder"])
    (True, False)
    """
    return any(SOURCES.settings(source).quotes for source in sources)


def switched_off(memory: Mapping[str, Any]) -> bool:
    """Whether a reading of a report changes nothing: its λ is 0 in every context."""
    return memory.get("lambda") == 0 and memory.get("learned") != "lambda"


def number_words(memory: Mapping[str, Any], name: str, split_tokens: int | None) -> str:
    """Text of a number of a report's reading; a cache larger than the scored split also gives its
    true size.

    Args:
        split_tokens: tokens of the scored split; None: not known.

    >>> number_words({"size": 16_000}, "size", 9_000), number_words({"size": 2_000}, "size", 9_000)
    ('16,000, all 9,000 of the split', '2,000')
    """
    value = memory[name]
    if name == "size" and split_tokens is not None and value >= split_tokens:
        return f"{number(value)}, all {split_tokens:,} of the split"
    return number(value)


def that_matter(memory: Mapping[str, Any]) -> Mapping[str, Any]:
    """A reading of a report; if it is switched off, without its tuned numbers, since all are
    equally good.

    >>> that_matter({"sources": ["long"], "size": 50, "theta": 0.0, "lambda": 0.0, "tuned": ["lambda", "size"]})
    {'sources': ['long'], 'theta': 0.0, 'lambda': 0.0, 'tuned': ['lambda']}
    """
    if not switched_off(memory):
        return memory
    tuned = memory.get("tuned") or ()
    # λ, tuned to 0, is what switches it off.
    equally_good = set(tuned) - {"lambda"}
    fixed = {name: value for name, value in memory.items() if name not in equally_good}
    fixed["tuned"] = [name for name in tuned if name == "lambda"]
    return fixed


def meanings(memories: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Meanings of the words in reports: sources, readers and numbers, with their symbols, each
    once.

    >>> meanings([{"sources": ["long"], "reader": "interpolate", "size": 2000, "lambda": 0.1}])
    {'long': 'the cache, the last positions read', 'interpolate': 'a weighted mean with what stands before it', \
'lambda λ': 'weight of the memory'}
    """
    meaning_of: dict[str, str] = {}
    for memory in memories:
        parts = [(SOURCES, name) for name in memory["sources"]]
        parts.append((READERS, memory["reader"]))
        for registry, name in parts:
            # A report may name a part from outside that is not installed here.
            if name in registry.names():
                meaning_of[name] = registry.settings(name).means
        for name, hyperparameter in settable().items():
            if memory.get(name) is not None:
                word = f"{name} {hyperparameter.symbol}".removesuffix(f" {name}")
                meaning_of[word] = hyperparameter.means
    return {word: meaning for word, meaning in meaning_of.items() if meaning}
