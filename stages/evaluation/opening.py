"""Opening of the model that an evaluation reads, with its memories and probes, and of the rows of
the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stages.artifacts.artifact import Artifact
from stages.diagnostics import PROBES
from stages.diagnostics.probe import Probe
from stages.encoding.encode import HiddenMemory, SplitReader
from stages.encoding.side_model import SideModel, SideModels
from stages.evaluation.figures.places import CountedTokens
from stages.evaluation.range_reader import RangeReader
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.lineage.evaluation import MODELS_OWN
from stages.methods.defaults import evaluation_defaults
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model
from stages.open_book.book import Book
from stages.open_book.reader import BookReader
from stages.open_book.settings import OpenBook
from stages.registry import import_outside
from stages.retrieval.book_input import BOOK
from stages.retrieval.gate_reader import GateMemory
from stages.retrieval.inputs import sources_of_inputs
from stages.retrieval.neighbors import Datastore, ExternalMemory
from stages.retrieval.reading import Reading
from stages.retrieval.rows import MemoryRow, rows_of
from stages.retrieval.sources.source import (
    Needs,
    Opening,
    Source,
    SourceInputs,
    source_classes,
)


@dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """How a model and its memories read a split, with all settings resolved."""

    read: Mapping[str, Artifact]
    """Artifacts by role, as in `stages.lineage.evaluation`."""
    readings: Sequence[Reading]
    """The memories, with their keys filled in."""
    windows: WindowSettings
    """Windows in which the model reads."""
    by_document: bool
    """Whether windows and carried state start again at every document."""
    precision: str
    options: Mapping[str, Any]
    """Options of probes."""
    split: str
    """The split that is scored."""
    exclude: str = "self"
    """Name of the rule for rows that tokens of the datastore's own text do not find in an index."""
    above: str = ""
    """Name of what changes the model itself; empty: nothing does."""
    open_book: OpenBook | None = None
    """The book whose passages the model reads; None: there is no book."""


def open_range_reader(
    settings: ReadingSettings,
    device: torch.device,
    *,
    last_words: Mapping[str, CountedTokens] | None = None,
    model: LanguageModel | None = None,
) -> tuple[RangeReader, tuple[MemoryRow, ...]]:
    """Load the model and everything that readings need; returns the reader and the rows of these
    readings.

    Args:
        last_words: by split, the only tokens that count; None: all count.
        model: the model in these windows, if it is loaded already.
    """
    read = settings.read
    windows = settings.windows
    corpus = Corpus.of(read["tokens"])
    reader = SplitReader(corpus, windows, settings.by_document, device, settings.precision)
    model = model or load_model(read["model"].path, device, windows)
    opening = Opening(read, settings.readings, model, reader, settings.exclude)
    memories = open_memories(opening)
    external = next(
        (memory for memory in memories.values() if isinstance(memory, ExternalMemory)), None
    )
    rows = open_rows(read, settings.readings, windows, device, memories, settings.above)
    datastore = None if external is None else external.datastore
    open_book = settings.open_book
    if open_book is not None:
        book = Book.open(read[BOOK.role], open_book, read["tokens"], settings.exclude, external)
        reader = BookReader.of(reader, open_book, book)
    range_reader = RangeReader(
        model,
        reader,
        Needs.of_all(row.needs for row in rows),
        external,
        last_words,
        _hidden_memory(read, settings.options, datastore),
        open_probes(read, settings.options, settings.split),
        memories,
        _side_models(memories),
    )
    return range_reader, rows


def _side_models(memories: Mapping[type[Source], Any]) -> dict[str, SideModel]:
    """The side models of all memories, by name."""
    models: dict[str, SideModel] = {}
    for memory in memories.values():
        if isinstance(memory, SideModels):
            models |= memory.models
    return models


def open_memories(opening: Opening) -> dict[type[Source], Any]:
    """Memories that the sources of an evaluation read from artifacts, by their classes.

    A source whose inputs are read for another purpose, such as drafts, opens its memory, too.
    """
    names = [name for reading in opening.readings for name in reading.sources]
    names += sources_of_inputs(opening.read)
    return {source: source.open_memory(opening) for source in source_classes(names)}


def open_rows(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    windows: WindowSettings,
    device: torch.device,
    memories: Mapping[type[Source], Any] | None = None,
    above: str = "",
) -> tuple[MemoryRow, ...]:
    """The rows of `open_range_reader`.

    Args:
        memories: result of `open_memories`; None: outlines of them, for plans and reports.
        above: as of `ReadingSettings`.
    """
    if memories is None:
        names = [name for reading in readings for name in reading.sources]
        memories = {
            source: source.outline_memory(read, readings, device)
            for source in source_classes(names)
        }
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    overlapping = windows.stride < windows.context
    inputs = SourceInputs(windows.context, overlapping, device.type, memories, vocabulary)
    model = read["model"]
    return rows_of(
        readings,
        inputs,
        evaluation_defaults(model).trained_with_memory,
        model_of(model).reads.source,
        above,
    )


def open_probes(
    read: Mapping[str, Artifact], options: Mapping[str, Any], split: str
) -> dict[str, Probe]:
    """Probes that apply to the model, by name; arguments as in `open_range_reader`."""
    import_outside()  # a worker process plans no work, so outside probes are not imported yet
    opened = {name: PROBES.load(name).open(read, options, split) for name in PROBES.names()}
    return {name: probe for name, probe in opened.items() if probe is not None}


def _hidden_memory(
    read: Mapping[str, Artifact], options: Mapping[str, Any], datastore: Datastore | None
) -> HiddenMemory | None:
    """The memory that enters the model's hidden states, if any; it shares the values of `datastore`
    if it has those.
    """
    neighbors = read.get(MODELS_OWN)
    if neighbors is None:
        return None
    values = None
    if (
        datastore is not None
        and "datastore" in read
        and neighbors.find("datastore").matches(read["datastore"].record)
    ):
        # without the last value, -1, the token of missing neighbours
        values = datastore.values[:-1].cpu().numpy()
    return GateMemory.open(neighbors, options["gate_k"], values)
