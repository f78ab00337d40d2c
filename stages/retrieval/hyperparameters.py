"""Every number that a reading may have, as sources and readers declare them: for tables and charts. Free of torch."""

from stages.memory.hyperparameter import Hyperparameter
from stages.memory.readers import READERS
from stages.retrieval.comparison import Comparison
from stages.retrieval.sources import SOURCES


def amounts() -> dict[str, Hyperparameter]:
    """Hyperparameters that say how much of a source is read."""
    sources = map(SOURCES.settings, SOURCES.names())
    return {name: number for source in sources for name, number in source.hyperparameters().items()}


def hyperparameters() -> dict[str, Hyperparameter]:
    """All, by the names that reports use, in the order of tables: how much is read, how sharply, with which weight."""
    sources = map(SOURCES.settings, SOURCES.names())
    reported = {name: number for source in sources for name, number in source.reported.items()}
    return amounts() | reported | settable()


def settable() -> dict[str, Hyperparameter]:
    """Those that `--memory` takes."""
    readers = map(READERS.settings, READERS.names())
    weights = {name: number for reader in readers for name, number in reader.hyperparameters().items()}
    return amounts() | Comparison.hyperparameters() | weights
