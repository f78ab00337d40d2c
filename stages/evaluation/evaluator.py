"""Reads ranges of a split with a model, and every row of memory readings on top of it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from stages.diagnostics.probe import Probe
from stages.encoding.carried_state import CarriedState
from stages.encoding.clock import Stopwatch
from stages.encoding.hidden_memory import HiddenMemory, HiddenReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.encoding.probe import Observation, RangeProbe
from stages.encoding.scoring import DENSE_SCORES, LMScores, score_blocks
from stages.encoding.split_reader import SplitReader
from stages.evaluation.figures.last_word import LastWords, is_best
from stages.evaluation.figures.range_scores import RangeScores, RowScores, RowSettings, summed
from stages.evaluation.tuning.coordinate_descent import TuningSums
from stages.memory.entries import LogSums
from stages.memory.search_gate import SearchGate
from stages.memory.weight_network import Positions
from stages.models.language_model import LanguageModel, State
from stages.retrieval.datastore import Datastore
from stages.retrieval.grids import ReadingGrid, compose, compose_dense, grid_nll, read_points
from stages.retrieval.neighbors import FoundNeighbors, IndexSearch, Retrieval
from stages.retrieval.retrieved import Retrieved
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.source import Needs
from stages.retrieval.weight_inputs import weight_inputs


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
class Evaluator:
    """A model, the way it reads a split, and the rows of memory on top.

    `external` is there where a row reads a datastore, `hidden_memory` where memory enters the model's hidden states.
    `last_words`: of each split, the tokens that alone count, and whose likeliest token is looked at; None: all count.
    `probes`: by name, those that the model has something to show for.
    """

    model: LanguageModel
    reader: SplitReader
    rows: tuple[MemoryRow, ...]
    external: ExternalMemory | None
    last_words: Mapping[str, LastWords] | None = None
    hidden_memory: HiddenMemory | None = None
    probes: Mapping[str, Probe] = field(default_factory=dict)

    # One range of tokens

    def read_range(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        *,
        probed: bool = False,
        known: bool = False,
        gate: SearchGate | None = None,
        searches: bool = True,
    ) -> RangeResult:
        """Score tokens [start, stop) with the model alone, and find their neighbours.

        Stored neighbours are read while the model works.

        Args:
            probed: whether probes watch.
            known: whether what learned weights know of contexts is found out, if there are any.
            gate: which of the tokens neighbours are found for; None: all.
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
            known = known and self.needs.context
            scored = self._score_without_readings(
                split, start, stop, carried, counted, hidden_reader, tuple(watching.values()), known
            )
            context = self._context(split, scored) if known else None
            model = watch.lap()
            queries, encoder_state = self._queries(split, scored, carried)
            searched = None if gate is None or context is None else gate.opens(context).numpy()
            found = early.result() if early else None
            if found is None and searches:
                found = self._find(split, start, stop, queries, searched)
            search = watch.lap()
        after = carried.after(scored, self.reach, self.needs.keys, encoder_state)
        past = watch.lap()
        places = self.reader.places(split, start, stop)
        scored_range = ScoredRange(scored, carried, places, counted, found, queries, context)
        seen = {name: probe.observation() for name, probe in watching.items()}
        model -= sum(one.seconds for one in seen.values())
        return RangeResult(scored_range, after, Seconds(model, search, past), seen)

    def read_apart(self, split: str, ranges: Sequence[tuple[int, int]]) -> list[ScoredRange]:
        """Score some ranges of tokens as `read_range` does each, nothing carried to them; an index is searched once."""
        retrieval = None if self.external is None else self.external.retrieval
        alone = not isinstance(retrieval, IndexSearch)
        parts = [
            self.read_range(split, start, stop, CarriedState(start), searches=alone).scored_range
            for start, stop in ranges
        ]
        if not isinstance(retrieval, IndexSearch):
            return parts
        found = retrieval.find_each(split, ranges, [part.queries for part in parts if part.queries is not None])
        return [replace(part, found=of_part) for part, of_part in zip(parts, found, strict=True)]

    def past(self, split: str, start: int, stop: int, carried: CarriedState) -> CarriedState:
        """Read tokens [start, stop) again for the state after them; no probe watches, and no memory enters."""
        scored = self._score_without_readings(split, start, stop, carried)
        encoder_state = self._queries(split, scored, carried)[1] if self._encoder_carries_state else None
        return carried.after(scored, self.reach, self.needs.keys, encoder_state)

    @property
    def reach(self) -> int:
        """Positions that readings reach back from a token, 0 for none."""
        return self.needs.reach

    @property
    def carries_state(self) -> bool:
        """Whether the model, or another that makes search keys, carries a state from range to range."""
        return self.model.config.carries_state or self._encoder_carries_state

    def _counted(self, split: str, start: int, stop: int) -> Tensor | None:
        if self.last_words is None:
            return None
        return torch.from_numpy(self.last_words[split].scored(start, stop)).to(self.reader.device)

    def _score_without_readings(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        counted: Tensor | None = None,
        hidden_reader: HiddenReader | None = None,
        probes: Sequence[RangeProbe] = (),
        certainty: bool = False,
    ) -> LMScores:
        """Score with the model, its gate included, and keep the keys that readings need, which are as before the
        gate."""
        return score_blocks(
            self.model,
            self.reader.encode(self.model, split, start, stop, carried.state),
            {*self.needs.keys, *self._own_search_key},
            self.needs.window_keys,
            counted,
            hidden_reader,
            probes,
            certainty,
        )

    def _context(self, split: str, scored: LMScores) -> Tensor:
        """Features of each context, float [n, 3]; see `weight_inputs.CONTEXT`."""
        assert scored.certainty is not None
        before = torch.from_numpy(self.reader.before(split, scored.start, scored.stop))
        counts = self._token_counts[before.to(self._token_counts.device)]
        return torch.cat((scored.certainty, counts.float().log1p()[:, None]), -1)

    @cached_property
    def _token_counts(self) -> Tensor:
        """How often each token stands in the datastore, int64 [V]; without one 0."""
        none = torch.zeros(0, dtype=torch.int64, device=self.reader.device)
        values = none if self.external is None else self.external.datastore.values[:-1]
        return values.bincount(minlength=self.model.config.vocab_size or 1)

    @cached_property
    def needs(self) -> Needs:
        """Needs of all rows."""
        return Needs.of_all(row.needs for row in self.rows)

    # Search keys

    @property
    def _encoder_carries_state(self) -> bool:
        """Whether search keys are made by another model, which carries a state."""
        if self.external is None or self.external.encoder.model is self.model:
            return False
        return self._needs_queries and self.external.encoder.carries_state

    @property
    def _needs_queries(self) -> bool:
        return self.external is not None and (self.external.retrieval.needs_keys or bool(self.needs.exact))

    @property
    def _own_search_key(self) -> tuple[str, ...]:
        """The representation of the evaluated model that a datastore is searched with, if it is."""
        if self.external is None or self.external.encoder.model is not self.model or not self._needs_queries:
            return ()
        return (self.external.encoder.key,)

    def _queries(self, split: str, scored: LMScores, carried: CarriedState) -> tuple[np.ndarray | None, State]:
        """Search keys float32 [n, d], if any are needed, and the state of the model that made them if another."""
        if self.external is None or not self._needs_queries:
            return None, None
        encoder = self.external.encoder
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

    # Tuning

    def grid_nll(self, scored_range: ScoredRange, row: MemoryRow, grids: Sequence[ReadingGrid]) -> np.ndarray:
        """Summed negative log-likelihood of the counted tokens at every point of a row's grid; see `grid_nll`."""
        scored, total = scored_range.lm, np.zeros([n for grid in grids for n in grid.shape])
        for rows, retrieved in row.retrieve(scored_range):
            total += grid_nll(scored.log_p[rows], scored.log_z[rows], retrieved, grids)
        return total

    def log_sums(self, scored_range: ScoredRange, row: MemoryRow, grids: Sequence[ReadingGrid]) -> TuningSums:
        """Inputs of `coordinate_descent` for a row: log p and log Z, [c]; each reading's log-sums."""
        scored, counted = scored_range.lm, scored_range.counted_rows
        parts = [
            [one.log_sums(grid.scales, grid.cutoffs) for one, grid in zip(retrieved, grids, strict=True)]
            for _, retrieved in row.retrieve(scored_range)
        ]
        return scored.log_p[counted], scored.log_z[counted], [_beside(list(one)) for one in zip(*parts, strict=True)]

    def positions(self, scored_range: ScoredRange, row: MemoryRow, settings: RowSettings) -> Positions:
        """Inputs for learning the weight of a row's last reading; positions without memory are left out."""
        scored, parts = scored_range.lm, []
        for rows, retrieved in row.retrieve(scored_range):
            log_p, log_z = scored.log_p[rows], scored.log_z[rows]
            if len(retrieved) > 1:
                log_p, _ = compose(log_p, log_z, retrieved[:-1], settings.grids[:-1], settings.points[:-1])
            point = settings.points[-1]
            log_sums = retrieved[-1].log_sums([point.scale], [point.cutoff]).at(0, 0)
            inputs = weight_inputs(scored_range, rows, retrieved[-1], point.scale, point.cutoff)
            found = Positions(inputs, log_p.double(), log_sums.log_prob.double())
            parts.append(found.taken(~log_sums.empty))
        return Positions.joined(parts)

    # Scoring

    def score(self, result: RangeResult, settings: Sequence[RowSettings]) -> RangeScores:
        """Score a range with the model alone and with every row at its settings."""
        scored_range = result.scored_range
        scored, counted = scored_range.lm, scored_range.counted_rows
        rows, seconds = [], [result.seconds.model]
        for row, at in zip(self.rows, settings, strict=True):
            shared = result.seconds.of(row) + self._recomputing_seconds(scored_range, row)
            watch = Stopwatch(self.reader.device)
            rows.append(self._read(scored_range, row, at))
            seconds.append(shared + watch.lap())
        targets, log_z = scored.targets[counted], scored.log_z[counted]
        correct = None if scored.hidden is None else self._correct(scored.hidden, targets, log_z, [], None)
        return RangeScores(targets, scored.log_p[counted], log_z, correct, rows, seconds, result.observations)

    def _recomputing_seconds(self, scored_range: ScoredRange, row: MemoryRow) -> float:
        """Seconds that recomputing distances from stored keys took for a row; later rows find them there."""
        if self.external is None:
            return 0.0
        keys = self.external.datastore.keys
        return sum(scored_range.exact_distances(keys, *wanted).seconds for wanted in row.needs.exact)

    def _read(self, scored_range: ScoredRange, row: MemoryRow, settings: RowSettings) -> RowScores:
        """Read a row's memory at its settings."""
        scored, done = scored_range.lm, 0
        if not settings.by_cutoff:
            row = row.narrowed([point.cutoff for point in settings.points])
        likeliest = scored.hidden is not None
        parts = [RowScores.of_nothing(len(row.sources), len(settings.by_cutoff), scored.log_p, likeliest)]
        for rows, retrieved in row.retrieve(scored_range):
            log_z = scored.log_z[rows]
            weights = _learned_weights(scored_range, rows, retrieved, settings)
            log_p, log_p_mem, sums = _read_part(scored.log_p[rows], log_z, retrieved, settings, weights)
            correct = None
            if scored.hidden is not None:
                hidden = scored.hidden[done : done + len(log_p)]
                correct = self._correct(hidden, scored.targets[rows], log_z, retrieved, settings, weights)
            memory, first = torch.stack(log_p_mem, -1), retrieved[0].first_matches
            by_gain = _by_gain(scored_range, rows, log_p, settings)
            parts.append(RowScores(log_p, memory, np.array(sums), first, correct, weights, by_gain))
            done += len(log_p)
        return RowScores.joined(parts)

    def _correct(
        self,
        hidden: Tensor,
        targets: Tensor,
        log_z: Tensor,
        retrieved: Sequence[Retrieved],
        settings: RowSettings | None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Whether no token is likelier than the target once memory, if any is retrieved, is read; bool [c]."""
        correct = []
        step = max(1, DENSE_SCORES // (self.model.config.vocab_size or 1))
        for start in range(0, len(hidden), step):
            part = slice(start, start + step)
            log_p = self.model.log_probs(hidden[part])
            if settings is not None:
                log_p = compose_dense(log_p, log_z[part], retrieved, part, settings.grids, settings.points, weights)
            correct.append(is_best(log_p, targets[part]))
        return torch.cat(correct) if correct else targets.new_empty(0, dtype=torch.bool)


def _learned_weights(
    scored_range: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved], settings: RowSettings
) -> Tensor | None:
    """The last reading's weight at each of some rows, where it is learned, [c]; 0 where nothing is read."""
    if settings.network is None:
        return None
    point, like = settings.points[-1], scored_range.lm.log_p
    inputs = weight_inputs(scored_range, rows, retrieved[-1], point.scale, point.cutoff)
    read = ~retrieved[-1].log_sums([point.scale], [point.cutoff]).at(0, 0).empty
    return settings.network.weights(inputs).to(like) * read


def _by_gain(
    scored_range: ScoredRange, rows: Tensor | slice, log_p: Tensor, settings: RowSettings
) -> np.ndarray | None:
    """For each threshold, the tokens at or above it, and the nats where these alone are searched for, [thresholds,
    2]."""
    if settings.gains is None:
        return None
    assert scored_range.context is not None
    predicted = settings.gains.outputs(scored_range.context[rows])[:, None]
    above = predicted.to(log_p.device) >= torch.tensor(settings.thresholds, dtype=torch.float64, device=log_p.device)
    read = torch.where(above, log_p[:, None], scored_range.lm.log_p[rows][:, None])
    return torch.stack((above.sum(0), -read.sum(0, dtype=torch.float64)), -1).cpu().numpy()


def _read_part(
    log_p: Tensor, log_z: Tensor, retrieved: Sequence[Retrieved], settings: RowSettings, weights: Tensor | None
) -> tuple[Tensor, list[Tensor], list[float]]:
    """log p [c], log p_mem of each reading [c], and summed nats for each cut-off of a lone one.

    Args:
        weights: of the last reading, [c], where it is learned.
    """
    if not settings.by_cutoff:
        return *compose(log_p, log_z, retrieved, settings.grids, settings.points, weights), []
    reads = read_points(log_p, log_z, retrieved[0], settings.grids[0], settings.by_cutoff)
    main, memory = reads[settings.by_cutoff.index(settings.points[0])]
    return main, [memory], [-summed(read) for read, _ in reads]


def _beside(parts: Sequence[LogSums]) -> LogSums:
    """LogSums [S, C, …] of tokens that follow each other."""
    joined = (torch.cat([getattr(part, name) for part in parts], -1) for name in ("target", "total", "max_score"))
    return LogSums(*joined)
