"""Ranges of a split as a model reads them, with all that memories on top of it look at."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.rows import RowsByName
from stages.diagnostics import PROBES
from stages.diagnostics.probe import Probe
from stages.encoding.carried_state import CarriedState
from stages.encoding.clock import Stopwatch
from stages.encoding.hidden_memory import HiddenMemory, HiddenReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.encoding.probe import Observation, RangeProbe
from stages.encoding.scoring import LMScores, score_blocks
from stages.encoding.split_reader import SplitReader
from stages.evaluation.figures.last_word import LastWords
from stages.examples.corpus import Corpus
from stages.examples.examples import Block
from stages.lineage.exact import EXACT, text_splits
from stages.lineage.rows import own_rows, stored_keys
from stages.memory.search_gate import SearchGate
from stages.methods.defaults import evaluation_defaults, is_own_datastore
from stages.models.language_model import LanguageModel, State, load_model
from stages.models.windows import WindowSettings
from stages.retrieval.gate_reader import open_hidden_memory
from stages.retrieval.neighbors import (
    Datastore,
    FoundNeighbors,
    IndexSearch,
    Retrieval,
    StoredNeighbors,
    open_datastore,
)
from stages.retrieval.pointers import PointerSearch
from stages.retrieval.reading import Reading
from stages.retrieval.rows import MemoryRow, rows_of
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.source import Needs, SourceInputs
from stages.search.config import forbidden_rows
from stages.search.open import open_searcher
from stages.suffixes.matches import SortedContexts
from stages.suffixes.open import open_contexts
from stages.text.tokens import open_split


@dataclass(frozen=True)
class ExternalMemory:
    """A datastore, how its neighbours are found, and what makes search keys as its own were made."""

    datastore: Datastore
    retrieval: Retrieval
    encoder: KeyEncoder


@dataclass(frozen=True)
class Seconds:
    """Seconds that reading a range took: in the model, in the search for neighbours, and in carrying the past."""

    model: float
    search: float
    past: float

    def of(self, row: MemoryRow) -> float:
        """Seconds that a row needs."""
        search = self.search if row.needs.neighbors else 0.0
        past = self.past if row.needs.reach else 0.0
        return self.model + search + past


@dataclass(frozen=True)
class RangeResult:
    """A range with its neighbours, what is carried past it, and what each probe saw of it."""

    scored_range: ScoredRange
    after: CarriedState
    seconds: Seconds
    observations: Mapping[str, Observation]


@dataclass(frozen=True)
class MatchedText:
    """The text of an exact index; `own`: offsets of documents of the splits that it is; `exclude`: rows not found."""

    contexts: SortedContexts
    own: Mapping[str, np.ndarray]
    exclude: str

    def forbidden(self, split: str, start: int, stop: int) -> np.ndarray | None:
        """Rows that tokens [start, stop) of a split may not find, int64 [n, 2]; None: they may find all."""
        return forbidden_rows(self.exclude, start, stop, self.own[split]) if split in self.own else None


Adapt = Callable[[LanguageModel, Iterator[Block]], LanguageModel]
"""Gives the model that scores some blocks, from the one that is evaluated, which stays as it is."""


def unadapted(model: LanguageModel, examples: Iterator[Block]) -> LanguageModel:
    """The model itself: most readings learn nothing at test."""
    return model


@dataclass(frozen=True)
class RangeReader:
    """A model, the way it reads a split, and what rows of memory on top need of it.

    `external` is there where a row reads a datastore, `hidden_memory` where memory enters the model's hidden states.
    `last_words`: of each split, the tokens that alone count, and whose hidden states are kept; None: all count.
    `probes`: by name, those that the model has something to show for. `adapt`: for readings that learn at test.
    """

    model: LanguageModel
    reader: SplitReader
    needs: Needs
    external: ExternalMemory | None = None
    last_words: Mapping[str, LastWords] | None = None
    hidden_memory: HiddenMemory | None = None
    probes: Mapping[str, Probe] = field(default_factory=dict)
    adapt: Adapt = unadapted
    matched: MatchedText | None = None

    def read(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        *,
        probed: bool = False,
        contexts: bool = False,
        gate: SearchGate | None = None,
        searches: bool = True,
    ) -> RangeResult:
        """Score tokens [start, stop) with the model alone, and find their neighbours.

        Stored neighbours are read while the model works.

        Args:
            probed: whether probes watch.
            contexts: whether features of contexts are computed, if they are needed.
            gate: the tokens that neighbours are found for, by these features; None: all.
            searches: whether neighbours are found at all.
        """
        counted = self._counted(split, start, stop)
        watch = Stopwatch(self.reader.device)
        with ThreadPoolExecutor(1) as background:
            memory = self.hidden_memory
            hidden_reader = None if memory is None else memory.begin(background, split, start, stop)
            probes = self.probes if probed else {}
            watching = {name: p.watch(self.model, hidden_reader, start, counted) for name, p in probes.items()}
            stored = self.external is not None and not self.external.retrieval.needs_keys and gate is None
            early = background.submit(self._find, split, start, stop, None) if stored else None
            contexts = contexts and self.needs.context
            scored = self._score(
                split, start, stop, carried, counted, hidden_reader, tuple(watching.values()), contexts
            )
            context = self._context(split, scored) if contexts else None
            model = watch.lap()
            queries, encoder_state = self._queries(split, scored, carried)
            searched = None if gate is None or context is None else gate.opens(context).numpy()
            found = early.result() if early else None
            if found is None and searches:
                found = self._find(split, start, stop, queries, searched)
            search = watch.lap()
        after = carried.after(scored, self.needs.reach, self.needs.keys, encoder_state)
        past = watch.lap()
        places = self.reader.places(split, start, stop)
        forbidden = None if self.matched is None else self.matched.forbidden(split, start, stop)
        scored_range = ScoredRange(scored, carried, places, counted, found, queries, context, forbidden)
        seen = {name: probe.observation() for name, probe in watching.items()}
        model -= sum(one.seconds for one in seen.values())
        return RangeResult(scored_range, after, Seconds(model, search, past), seen)

    def read_separately(self, split: str, ranges: Sequence[tuple[int, int]]) -> list[ScoredRange]:
        """Score some ranges of tokens as `read` does each, nothing carried to them; an index is searched once."""
        retrieval = None if self.external is None else self.external.retrieval
        alone = not isinstance(retrieval, IndexSearch)
        parts = [
            self.read(split, start, stop, CarriedState(start), searches=alone).scored_range for start, stop in ranges
        ]
        if not isinstance(retrieval, IndexSearch):
            return parts
        found = retrieval.find_each(split, ranges, [part.queries for part in parts if part.queries is not None])
        return [replace(part, found=of_part) for part, of_part in zip(parts, found, strict=True)]

    def past(self, split: str, start: int, stop: int, carried: CarriedState) -> CarriedState:
        """Read tokens [start, stop) again for the state after them; no probe watches, and no memory enters."""
        scored = self._score(split, start, stop, carried)
        encoder_state = self._queries(split, scored, carried)[1] if self._encoder_carries_state else None
        return carried.after(scored, self.needs.reach, self.needs.keys, encoder_state)

    @property
    def carries_state(self) -> bool:
        """Whether the model, or another that makes search keys, carries a state from range to range."""
        return self.model.config.carries_state or self._encoder_carries_state

    def recomputing_seconds(self, scored_range: ScoredRange, row: MemoryRow) -> float:
        """Seconds that recomputing distances from stored keys took for a row; later rows find them there."""
        if self.external is None:
            return 0.0
        keys = self.external.datastore.keys
        return sum(scored_range.exact_distances(keys, *wanted).seconds for wanted in row.needs.exact)

    def _counted(self, split: str, start: int, stop: int) -> Tensor | None:
        if self.last_words is None:
            return None
        return torch.from_numpy(self.last_words[split].scored(start, stop)).to(self.reader.device)

    def _score(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        counted: Tensor | None = None,
        hidden_reader: HiddenReader | None = None,
        probes: Sequence[RangeProbe] = (),
        contexts: bool = False,
    ) -> LMScores:
        """Score with the model, its gate included, and keep the keys that readings need, as before the gate."""
        encoder = self._encoder
        own = () if encoder is None or encoder.model is not self.model else (encoder.key,)
        model = self.adapt(self.model, self.reader.blocks(self.model, split, start, stop))
        return score_blocks(
            model,
            self.reader.encode(model, split, start, stop, carried.state),
            {*self.needs.keys, *own},
            self.needs.window_keys,
            counted,
            hidden_reader,
            probes,
            contexts,
        )

    def _context(self, split: str, scored: LMScores) -> Tensor:
        """Features of each context, float [n, 3]: those of `stages.retrieval.weights.learned.CONTEXT`."""
        assert scored.certainty is not None
        before = torch.from_numpy(self.reader.before(split, scored.start, scored.stop))
        counts = torch.zeros(len(before), device=scored.log_p.device)
        if self.external is not None:
            frequency = self.external.datastore.token_counts
            counts = frequency[before.to(frequency.device).clamp(max=len(frequency) - 1)].float()
        return torch.cat((scored.certainty, counts.log1p()[:, None]), -1)

    # Search keys

    @property
    def _encoder(self) -> KeyEncoder | None:
        """The encoder of search keys, for a search or for distances from the stored keys; None: none are needed."""
        if self.external is None or not (self.external.retrieval.needs_keys or self.needs.exact):
            return None
        return self.external.encoder

    @property
    def _encoder_carries_state(self) -> bool:
        """Whether search keys are made by another model, which carries a state."""
        encoder = self._encoder
        return encoder is not None and encoder.model is not self.model and encoder.carries_state

    def _queries(self, split: str, scored: LMScores, carried: CarriedState) -> tuple[np.ndarray | None, State]:
        """Search keys float32 [n, d], if any are needed, and the state of the model that made them if another."""
        encoder = self._encoder
        if encoder is None:
            return None, None
        if encoder.model is self.model:
            return search_keys(encoder.rounded(scored.keys[encoder.key])), None
        encoded = encoder.encode(split, scored.start, scored.stop, carried.encoder_state)
        return search_keys(encoded.keys), encoded.state

    def _find(
        self, split: str, start: int, stop: int, queries: np.ndarray | None, searched: np.ndarray | None = None
    ) -> FoundNeighbors | None:
        if self.external is None:
            return None
        return self.external.retrieval.find(split, start, stop, queries, searched)


def open_range_reader(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    windows: WindowSettings,
    *,
    by_document: bool,
    device: torch.device,
    precision: str,
    options: Mapping[str, Any],
    split: str,
    exclude: str = "self",
    last_words: Mapping[str, LastWords] | None = None,
) -> tuple[RangeReader, tuple[MemoryRow, ...]]:
    """Load the model, and what completed readings need; with the rows of these readings.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
        windows: how the model reads.
        by_document: whether windows and carried state begin anew at every document.
        options: those of probes, resolved.
        split: that is scored.
        exclude: rows that tokens of the datastore's own text do not find, where an index is searched.
        last_words: of each split, the tokens that alone count.
    """
    reader = SplitReader(Corpus.of(read["tokens"]), windows, by_document, device, precision)
    model = load_model(read["model"].path, device, windows)
    external = _external_memory(read, readings, model, reader, exclude) if "datastore" in read else None
    datastore = None if external is None else external.datastore
    matched = _matched_text(read, exclude)
    rows = _rows(read, readings, windows, device, datastore, None if matched is None else matched.contexts)
    return (
        RangeReader(
            model,
            reader,
            Needs.of_all(row.needs for row in rows),
            external,
            last_words,
            _hidden_memory(read, options, datastore),
            open_probes(read, options, split),
            matched=matched,
        ),
        rows,
    )


def open_rows(
    read: Mapping[str, Artifact], readings: Sequence[Reading], windows: WindowSettings, device: torch.device
) -> tuple[MemoryRow, ...]:
    """The rows of `open_range_reader`, to plan by and to report; neither model nor index nor values are read."""
    datastore = None
    if "datastore" in read:
        keys, values = stored_keys(read["datastore"]), torch.empty(0, dtype=torch.int32, device=device)
        datastore = Datastore(keys, values, read["index"].config["metric"], is_lossless(read))
    return _rows(read, readings, windows, device, datastore)


def _rows(
    read: Mapping[str, Artifact],
    readings: Sequence[Reading],
    windows: WindowSettings,
    device: torch.device,
    datastore: Datastore | None,
    contexts: SortedContexts | None = None,
) -> tuple[MemoryRow, ...]:
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    overlapping = windows.stride < windows.context
    inputs = SourceInputs(windows.context, overlapping, device.type, datastore, contexts, vocabulary)
    return rows_of(readings, inputs, evaluation_defaults(read["model"]).trained_with_memory)


def _matched_text(read: Mapping[str, Artifact], exclude: str) -> MatchedText | None:
    """The text of the exact index that is read, if one is."""
    if EXACT not in read:
        return None
    tokens, held = read["tokens"], text_splits(read[EXACT], read["tokens"])
    offsets = {split: np.asarray(open_split(tokens.zarr("tokens.zarr"), split).doc_offsets[:]) for split in held}
    return MatchedText(open_contexts(read[EXACT]), offsets, exclude)


def is_lossless(read: Mapping[str, Artifact]) -> bool:
    """Whether the distances of the neighbours that are read are those of the stored keys."""
    return bool(read["index"].metrics["lossless"] or ("neighbors" in read and read["neighbors"].config["exact"]))


def open_probes(read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> dict[str, Probe]:
    """Those that have something to show of the model, by name; see `open_range_reader`."""
    opened = {name: PROBES.load(name).open(read, options, split) for name in PROBES.names()}
    return {name: probe for name, probe in opened.items() if probe is not None}


def _hidden_memory(
    read: Mapping[str, Artifact], options: Mapping[str, Any], datastore: Datastore | None
) -> HiddenMemory | None:
    """Open the memory that enters the model's hidden states; values of a shared datastore are in memory once."""
    if "gate_neighbors" not in read:
        return None
    values = None if datastore is None else datastore.values[:-1].cpu().numpy()
    return open_hidden_memory(read, options, read.get("datastore"), values)


def _external_memory(
    read: Mapping[str, Artifact], readings: Sequence[Reading], model: LanguageModel, reader: SplitReader, exclude: str
) -> ExternalMemory:
    """The datastore that readings look into, and where neighbours in it come from."""
    index, k = read["index"], max(reading.neighbors for reading in readings)
    metric = index.config["metric"]
    datastore = open_datastore(read["datastore"], metric, is_lossless(read), reader.device)
    encoder = KeyEncoder.of(read["datastore"], reader, model if is_own_datastore(read) else None)
    if "neighbors" in read:
        stored = RowsByName(read["neighbors"].zarr("neighbors.zarr"))
        return ExternalMemory(datastore, StoredNeighbors(stored, k, metric), encoder)
    keys = datastore.keys.rows, datastore.keys.dim
    searcher = open_searcher(index.file("index.faiss"), index.config, keys, reader.device.type)
    own = own_rows(read["datastore"], read["tokens"])
    search = IndexSearch(searcher, k, own, exclude)
    fewest = readings[0].value("pointers")
    if fewest is None:
        return ExternalMemory(datastore, search, encoder)
    return ExternalMemory(datastore, PointerSearch(search, datastore, reader.tokens, fewest), encoder)
