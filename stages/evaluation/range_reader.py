"""Reading of a range of a split: the model's scores, and everything that memories on top of it
need.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.adaptation.learner import Learner
from stages.diagnostics.probe import Probe, RangeProbe
from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import HiddenMemory, HiddenReader, SplitReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.encoding.probe import Observation
from stages.encoding.scoring import LMScores, score_blocks
from stages.encoding.side_model import SideModel
from stages.evaluation.figures.places import CountedTokens
from stages.examples.examples import Corpus
from stages.memory.predicted_gain import PredictedGain
from stages.models.computing import Stopwatch
from stages.models.language_model import LanguageModel, State
from stages.retrieval.neighbors import ExternalMemory, FoundNeighbors
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.source import Needs, Source


@dataclass(frozen=True)
class RangeResult:
    """A range with its neighbours, the state after it, the observations of each probe, and the
    seconds spent on it.
    """

    scored_range: ScoredRange
    after: CarriedState
    observations: Mapping[str, Observation]
    model: float
    """Seconds in the model."""
    search: float
    """Seconds in the search for neighbours."""
    past: float
    """Seconds in carrying the past."""
    sides: Mapping[str, float] = field(default_factory=dict)
    """Seconds in each side model."""

    def seconds(self, row: MemoryRow) -> float:
        """Seconds that a row needs."""
        search = self.search if row.needs.neighbors else 0.0
        past = self.past if row.needs.reach else 0.0
        sides = sum(self.sides[name] for name in row.needs.models)
        return self.model + search + past + sides


class RangeOptions(NamedTuple):
    """Choice of what is read of a range besides its scores and stored neighbours."""

    probed: bool = False
    """Whether probes watch."""
    contexts: bool = False
    """Whether features of contexts are computed, if they are needed."""
    where: PredictedGain | None = None
    """Predicts from these features which tokens are worth a search; None: all are searched for."""
    searches: bool = True
    """Whether neighbours are searched for at all; stored ones are read anyway."""
    distributions: Tensor | None = None
    """Tokens whose whole distributions by the model are kept, bool [n]; None: none."""


USUAL = RangeOptions()


class _ModelReading(NamedTuple):
    """Scores of a range by the model, and the probes that watched it."""

    scored: LMScores
    context: Tensor | None
    """Features of contexts, float [n, 3]."""
    probes: dict[str, RangeProbe]
    """The watch of each probe, which has seen the range."""


class _SideReadings(NamedTuple):
    """Readings of a range by further models, by their names."""

    hidden: dict[str, Tensor]
    """Hidden states [n, d]."""
    states: dict[str, State]
    """States after the range."""
    seconds: dict[str, float]


@dataclass(frozen=True)
class RangeReader:
    """A model, the way it reads a split, and the needs of the rows of memory on top.

    `external`: set if a row reads a datastore. `hidden_memory`: set if memory enters the model's
    hidden states. `last_words`: by split, the only tokens that count, and whose hidden states are
    kept; None: all count.
    `probes`: probes that apply to the model, by name. `memories`: what sources read from artifacts,
    by their classes. `learner`: set if the model learns from the text while it is scored.
    """

    model: LanguageModel
    split_reader: SplitReader
    needs: Needs
    external: ExternalMemory | None = None
    last_words: Mapping[str, CountedTokens] | None = None
    hidden_memory: HiddenMemory | None = None
    probes: Mapping[str, Probe] = field(default_factory=dict)
    memories: Mapping[type[Source], Any] = field(default_factory=dict)
    side_models: Mapping[str, SideModel] = field(default_factory=dict)
    """Further models that read the text, by name."""
    learner: Learner | None = None

    def read(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        options: RangeOptions = USUAL,
    ) -> RangeResult:
        """Score tokens [start, stop) with the model alone, and find their neighbours."""
        counted = self._counted(split, start, stop)
        watch = Stopwatch(self.split_reader.device)
        # Stored neighbours are read while the model works.
        with ThreadPoolExecutor(1) as background:
            memory = self.hidden_memory
            hidden = None if memory is None else memory.begin(background, split, start, stop)
            stored = self._stored_neighbors(background, split, start, stop, options.where)
            read = self._read_model(split, start, stop, carried, hidden, counted, options)
            scored = read.scored
            model = watch.lap()

            queries, encoder_state = self._queries(split, scored, carried)
            neighbors = None if stored is None else stored.result()
            if neighbors is None and options.searches:
                neighbors = self._search(split, scored, queries, read.context, options.where)
            search = watch.lap()
        side = self._read_side_models(split, start, stop, carried, watch)
        after = self._after(scored, carried, encoder_state, side.states)
        past = watch.lap()
        places = self.split_reader.places(split, start, stop)
        scored_range = ScoredRange(
            scored, carried, places, counted, neighbors, queries, read.context, split, side.hidden
        )
        observations = {name: probe.observation() for name, probe in read.probes.items()}
        # The time of probes is taken off, since rows of a report are compared by their cost.
        model -= sum(observation.seconds for observation in observations.values())
        return RangeResult(scored_range, after, observations, model, search, past, side.seconds)

    def _read_model(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        hidden: HiddenReader | None,
        counted: Tensor | None,
        options: RangeOptions,
    ) -> _ModelReading:
        """Read tokens [start, stop) with the model, watched by probes."""
        probes = self._probe_watches(hidden, start, counted) if options.probed else {}
        reads_contexts = options.contexts and self.needs.context
        scored = self._score(
            split,
            start,
            stop,
            carried,
            hidden_rows=counted,
            reader=hidden,
            probes=tuple(probes.values()),
            certainty=reads_contexts,
            distribution_rows=options.distributions,
        )
        context = self._context(split, scored) if reads_contexts else None
        return _ModelReading(scored, context, probes)

    def _search(
        self,
        split: str,
        scored: LMScores,
        queries: np.ndarray | None,
        context: Tensor | None,
        where: PredictedGain | None,
    ) -> FoundNeighbors | None:
        """Search for neighbours of the tokens that are worth it; None without a datastore."""
        if self.external is None:
            return None
        worth = None if where is None or context is None else where.worth(context).numpy()
        return self.external.retrieval.find(split, scored.start, scored.stop, queries, worth)

    def _stored_neighbors(
        self,
        background: ThreadPoolExecutor,
        split: str,
        start: int,
        stop: int,
        where: PredictedGain | None,
    ) -> Future[FoundNeighbors] | None:
        """Begin to read neighbours that need no keys, while the model works; None: there are none."""
        if self.external is None or where is not None:
            return None
        retrieval = self.external.retrieval
        if retrieval.needs_keys:
            return None
        return background.submit(retrieval.find, split, start, stop, None)

    def _probe_watches(
        self, hidden: HiddenReader | None, start: int, counted: Tensor | None
    ) -> dict[str, RangeProbe]:
        """A watch of each probe over a range, by the probe's name."""
        return {
            name: probe.watch(self.model, hidden, start, counted)
            for name, probe in self.probes.items()
        }

    def _counted(self, split: str, start: int, stop: int) -> Tensor | None:
        """Which tokens [start, stop) count, bool [n]; None: all of them."""
        if self.last_words is None:
            return None
        counted = self.last_words[split].scored(start, stop)
        return torch.from_numpy(counted).to(self.split_reader.device)

    def _read_side_models(
        self, split: str, start: int, stop: int, carried: CarriedState, watch: Stopwatch
    ) -> _SideReadings:
        """Read tokens [start, stop) with each further model, from its own state."""
        readings = _SideReadings({}, {}, {})
        for name, model in self.side_models.items():
            before = carried.side_states.get(name)
            hidden, after = model.encode(split, start, stop, before)
            readings.hidden[name] = hidden
            readings.states[name] = after
            readings.seconds[name] = watch.lap()
        return readings

    def read_separately(self, split: str, ranges: Sequence[tuple[int, int]]) -> list[ScoredRange]:
        """Score ranges of tokens as `read` does, each without a past; an index is searched once for
        all of them.
        """
        parts = []
        for start, stop in ranges:
            result = self.read(
                split, start, stop, CarriedState(start), RangeOptions(searches=False)
            )
            parts.append(result.scored_range)
        # Stored neighbours are read with each range; others are searched for here.
        if self.external is None or not self.external.retrieval.needs_keys:
            return parts

        keys = [part.queries for part in parts if part.queries is not None]
        neighbors = self.external.retrieval.find_each(split, ranges, keys)
        return [
            replace(part, neighbors=of_part) for part, of_part in zip(parts, neighbors, strict=True)
        ]

    def past(self, split: str, start: int, stop: int, carried: CarriedState) -> CarriedState:
        """The state after tokens [start, stop), read again without probes and without memory."""
        scored = self._score(split, start, stop, carried)
        encoder_state = (
            self._queries(split, scored, carried)[1] if self._encoder_carries_state else None
        )
        side_states = {
            name: side.encode(split, start, stop, carried.side_states.get(name)).state
            for name, side in self.side_models.items()
            if side.carries_state
        }
        return self._after(scored, carried, encoder_state, side_states)

    def _after(
        self,
        scored: LMScores,
        carried: CarriedState,
        encoder_state: State,
        side_states: Mapping[str, State],
    ) -> CarriedState:
        """The past of the token after a range that began with `carried`."""
        learned = None if self.learner is None else self.learner.learned
        return carried.after(
            scored, self.needs.reach, self.needs.keys, encoder_state, side_states, learned
        )

    def of_corpus(self, corpus: Corpus) -> "RangeReader":
        """The same reader of another text, without probes; stored neighbours stay those of places."""
        external = self.external
        if external is not None:
            queries = replace(external.encoder.reader, corpus=corpus)
            external = replace(external, encoder=replace(external.encoder, reader=queries))
        split_reader = replace(self.split_reader, corpus=corpus)
        sides = {name: side.of_corpus(corpus) for name, side in self.side_models.items()}
        return replace(
            self, split_reader=split_reader, external=external, side_models=sides, probes={}
        )

    @property
    def carries_state(self) -> bool:
        """Whether the model, a separate encoder of search keys or a side model carries a state from
        range to range; what the model learned is one.
        """
        is_carried = self.model.config.carries_state or self._encoder_carries_state
        is_carried = is_carried or self.learner is not None
        return is_carried or any(side.carries_state for side in self.side_models.values())

    def recomputing_seconds(self, scored_range: ScoredRange, row: MemoryRow) -> float:
        """Seconds to recompute distances from stored keys for a row; later rows reuse them."""
        if self.external is None:
            return 0.0
        keys = self.external.datastore.keys
        return sum(
            scored_range.stored_distances.nearest(keys, metric, k).seconds
            for metric, k in row.needs.exact
        )

    def _score(
        self, split: str, start: int, stop: int, carried: CarriedState, **others: Any
    ) -> LMScores:
        """Score with the model, and keep the keys that readings need; `others`: arguments of
        `score_blocks`.
        """
        encoder = self.encoder
        keys_of_model = () if encoder is None or encoder.model is not self.model else (encoder.key,)
        if self.learner is None:
            blocks = self.split_reader.encode(self.model, split, start, stop, carried.state)
        else:
            blocks = self.learner.encode(
                self.split_reader, split, start, stop, carried.state, carried.learned
            )
        return score_blocks(
            self.model, blocks, {*self.needs.keys, *keys_of_model}, self.needs.window_keys, **others
        )

    def _context(self, split: str, scored: LMScores) -> Tensor:
        """Features of each context of a range, float [n, 3]."""
        assert scored.certainty is not None
        before = torch.from_numpy(self.split_reader.before(split, scored.start, scored.stop))
        return self.context_features(scored.certainty, before)

    def context_features(self, certainty: Tensor, before: Tensor) -> Tensor:
        """Features of contexts, float [n, 3], as listed in
        `stages.retrieval.weights.learned.CONTEXT`.

        Args:
            certainty: result of `certainty_of`, [n, 2].
            before: the token before each position, int64 [n].
        """
        counts = torch.zeros(len(before), device=certainty.device)
        if self.external is not None:
            frequency = self.external.datastore.token_counts
            counts = frequency[before.to(frequency.device).clamp(max=len(frequency) - 1)].float()
        return torch.cat((certainty, counts.log1p()[:, None]), -1)

    # Search keys

    @property
    def encoder(self) -> KeyEncoder | None:
        """The encoder of search keys, for a search or for distances from stored keys; None if no
        keys are needed.
        """
        if self.external is None or not (self.external.retrieval.needs_keys or self.needs.exact):
            return None
        return self.external.encoder

    @property
    def _encoder_carries_state(self) -> bool:
        """Whether a separate model makes the search keys, and carries a state."""
        encoder = self.encoder
        return encoder is not None and encoder.model is not self.model and encoder.carries_state

    def _queries(
        self, split: str, scored: LMScores, carried: CarriedState
    ) -> tuple[np.ndarray | None, State]:
        """Search keys float32 [n, d], if needed, and the state of the separate model that made
        them, if any.
        """
        encoder = self.encoder
        if encoder is None:
            return None, None
        if encoder.model is self.model:
            return search_keys(encoder.rounded(scored.keys[encoder.key])), None
        encoded = encoder.encode(split, scored.start, scored.stop, carried.encoder_state)
        return search_keys(encoded.keys), encoded.state
