"""Scores ranges of a split with a model and with every row of memory readings on top of it."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.consulted import Consulted
from stages.evaluation.descent import Part
from stages.evaluation.external import Datastore, ExternalPlan
from stages.evaluation.grids import Point, ReadingGrid, Recalled, compose, grid_nll, read_points
from stages.evaluation.history import History
from stages.evaluation.last_word import LastWords, is_best
from stages.evaluation.recent import RecentPlan
from stages.evaluation.retrieval import Found, Retrieval
from stages.evaluation.rows import MemoryRow
from stages.evaluation.scoring import score_blocks, search_keys
from stages.evaluation.split_reader import SplitReader
from stages.memory.cells import Masses, dense_masses, first_hit, target_masses
from stages.models.language_model import LanguageModel, State


@dataclass(frozen=True)
class ExternalMemory:
    """A datastore, how its neighbours are found, and the model that made its keys.

    `reader` is how keys are made if that is another model than the one evaluated: in the datastore's windows.
    """

    datastore: Datastore
    retrieval: Retrieval
    encoder: LanguageModel
    reader: SplitReader
    key: str
    dtype: str


@dataclass(frozen=True)
class Settings:
    """What a row is read with: a point a reading; for a lone one also a point for each cut-off."""

    grids: Sequence[ReadingGrid]
    points: Sequence[Point]
    by_cutoff: Sequence[Point]


@dataclass(frozen=True)
class RowScores:
    """c counted tokens read by a row.

    `log_p` [c] and `log_p_mem` [c, readings] in nats; `nll_by_cutoff`: sums over all of them;
    `first_hits` [c]: place of the first cell of the first reading that is right;
    `correct` bool [c]: whether no token is likelier, None if that was not asked for.
    """

    log_p: Tensor
    log_p_mem: Tensor
    nll_by_cutoff: np.ndarray
    first_hits: Tensor
    correct: Tensor | None


@dataclass(frozen=True)
class Passage:
    """A range of the scored split: c counted tokens by the model alone, and by each row.

    `targets` int64, `log_p` and `log_z` float32, `correct` bool or None: all [c], of the model alone.
    """

    targets: Tensor
    log_p: Tensor
    log_z: Tensor
    correct: Tensor | None
    rows: list[RowScores]
    seconds: list[float]
    """The model alone, then every row with all that it needs."""


class Consultation(NamedTuple):
    """A range with its neighbours, the history behind it, and the seconds for the model and for the search."""

    consulted: Consulted
    after: History
    model_seconds: float
    search_seconds: float


@dataclass(frozen=True)
class Evaluator:
    """A model, the way it reads a split, and the rows of memory on top.

    `external` is there where a row reads a datastore. `last_words`: of each split, the tokens that
    alone count, and whose likeliest token is looked at; None: all tokens count.
    """

    model: LanguageModel
    reader: SplitReader
    rows: tuple[MemoryRow, ...]
    external: ExternalMemory | None
    last_words: Mapping[str, LastWords] | None = None

    # What is needed of the past

    @property
    def reach(self) -> int:
        """Positions that readings reach back from a token, 0 for none."""
        return max((plan.width for plan in self._recent), default=0)

    @property
    def carries_state(self) -> bool:
        """Whether a model that encodes the split here carries state from token to token."""
        return any(model.config.carries_state for model in (self.model, self._foreign) if model is not None)

    @property
    def _recent(self) -> list[RecentPlan]:
        return [plan for row in self.rows for plan in row.plans if isinstance(plan, RecentPlan)]

    @property
    def _recent_keys(self) -> set[str]:
        return {plan.reading.key for plan in self._recent if plan.reading.key is not None}

    @property
    def _foreign(self) -> LanguageModel | None:
        """Another model than the one evaluated, where it must make search keys."""
        if self.external is None or self.external.encoder is self.model or not self._needs_queries:
            return None
        return self.external.encoder

    @property
    def _needs_queries(self) -> bool:
        plans = [plan for row in self.rows for plan in row.plans if isinstance(plan, ExternalPlan)]
        return self.external is not None and (
            self.external.retrieval.needs_keys or any(plan.recompute for plan in plans)
        )

    # One range of tokens

    def consult(self, split: str, start: int, stop: int, history: History) -> Consultation:
        """Score tokens [start, stop) with the model alone, and find their neighbours.

        Stored neighbours are read while the model works.
        """
        started = time.perf_counter()
        counted = None
        if self.last_words is not None:
            counted = torch.from_numpy(self.last_words[split].scored(start, stop)).to(self.reader.device)
        with ThreadPoolExecutor(1) as background:
            stored = self.external is not None and not self.external.retrieval.needs_keys
            early = background.submit(self._find, split, start, stop, None) if stored else None
            scored = score_blocks(
                self.model,
                self.reader.encode(self.model, split, start, stop, history.state),
                {*self._recent_keys, *self._own_search_key},
                {plan.reading.key or "" for plan in self._recent if plan.by_window},
                counted,
            )
            between = time.perf_counter()
            queries, encoder_state = self._queries(split, scored.keys, start, stop, history)
            found = early.result() if early else self._find(split, start, stop, queries)
        places = self.reader.places(split, start, stop)
        after = history.after(scored, self.reach, self._recent_keys, encoder_state)
        consulted = Consulted(scored, history, places, counted, found, queries)
        return Consultation(consulted, after, between - started, time.perf_counter() - between)

    @property
    def _own_search_key(self) -> tuple[str, ...]:
        """The representation of the evaluated model that a datastore is searched with, if it is."""
        if self.external is None or self._foreign is not None or not self._needs_queries:
            return ()
        return (self.external.key,)

    def _queries(
        self, split: str, keys: Mapping[str, Tensor], start: int, stop: int, history: History
    ) -> tuple[np.ndarray | None, State]:
        """Search keys float32 [n, d], if any are needed, and the state of the model that made them if another."""
        memory = self.external
        if memory is None or not self._needs_queries:
            return None, None
        if self._foreign is None:
            return search_keys(keys[memory.key], memory.dtype), None
        made, state = [], history.encoder_state
        for block in memory.reader.encode(memory.encoder, split, start, stop, state):
            made.append(search_keys(block.key(memory.key), memory.dtype))
            state = block.state
        return np.concatenate(made), state

    def _find(self, split: str, start: int, stop: int, queries: np.ndarray | None) -> Found | None:
        return None if self.external is None else self.external.retrieval.find(split, start, stop, queries)

    # Tuning

    def tune(self, consulted: Consulted, row: MemoryRow, grids: Sequence[ReadingGrid]) -> np.ndarray:
        """Summed negative log-likelihood of the counted tokens at every point of a row's grid; see `grid_nll`."""
        scored, total = consulted.scored, np.zeros([n for grid in grids for n in grid.shape])
        for rows, recalled in row.recall(consulted):
            total += grid_nll(scored.log_p[rows], scored.log_z[rows], recalled, grids)
        return total

    def masses(self, consulted: Consulted, row: MemoryRow, grids: Sequence[ReadingGrid]) -> Part:
        """What `descend` needs of a range to tune a row: log p and log Z, [c], and each reading's masses."""
        scored, counted = consulted.scored, consulted.counted_rows
        parts = [
            [target_masses(*one, grid.scales, grid.cutoffs) for one, grid in zip(recalled, grids, strict=True)]
            for _, recalled in row.recall(consulted)
        ]
        return scored.log_p[counted], scored.log_z[counted], [_beside(list(one)) for one in zip(*parts, strict=True)]

    # Scoring

    def score(self, consultation: Consultation, settings: Sequence[Settings]) -> Passage:
        """Score a range with the model alone and with every row at its settings."""
        consulted, _, alone, search = consultation
        scored, counted = consulted.scored, consulted.counted_rows
        rows, seconds = [], [alone]
        for row, at in zip(self.rows, settings, strict=True):
            started = time.perf_counter()
            rows.append(self._read(consulted, row, at))
            searched = search if any(isinstance(plan, ExternalPlan) for plan in row.plans) else 0.0
            seconds.append(alone + searched + time.perf_counter() - started)
        targets = scored.targets[counted]
        correct = None if scored.hidden is None else is_best(self.model.log_probs(scored.hidden), targets)
        return Passage(targets, scored.log_p[counted], scored.log_z[counted], correct, rows, seconds)

    def _read(self, consulted: Consulted, row: MemoryRow, settings: Settings) -> RowScores:
        """Read a row's memory at its settings."""
        scored, done = consulted.scored, 0
        parts = [_nothing(row, settings, scored.log_p, scored.hidden is not None)]
        for rows, recalled in row.recall(consulted):
            log_z = scored.log_z[rows]
            log_p, log_p_mem, sums = _read_part(scored.log_p[rows], log_z, recalled, settings)
            correct = None
            if scored.hidden is not None:
                hidden = scored.hidden[done : done + len(log_p)]
                correct = self._correct(hidden, scored.targets[rows], log_z, recalled, settings)
            hits = first_hit(recalled[0].hits, len(log_p), settings.grids[0].cutoffs[-1])
            parts.append(RowScores(log_p, torch.stack(log_p_mem, -1), np.array(sums), hits, correct))
            done += len(log_p)
        return _joined(parts)

    def _correct(
        self, hidden: Tensor, targets: Tensor, log_z: Tensor, recalled: Sequence[Recalled], settings: Settings
    ) -> Tensor:
        """Whether no token is likelier than the target with the row's memory read, bool [c]."""
        log_p = self.model.log_probs(hidden)
        for one, grid, point in zip(recalled, settings.grids, settings.points, strict=True):
            masses = dense_masses(one.cells, point.scale, point.cutoff, log_p.shape[1])
            log_p = grid.reader.read(log_p, log_z[:, None], masses, point.weight)
        return is_best(log_p, targets)


def _read_part(
    log_p: Tensor, log_z: Tensor, recalled: Sequence[Recalled], settings: Settings
) -> tuple[Tensor, list[Tensor], list[float]]:
    """log p [c], log p_mem of each reading [c], and summed nats for each cut-off of a lone one."""
    if not settings.by_cutoff:
        return *compose(log_p, log_z, recalled, settings.grids, settings.points), []
    reads = read_points(log_p, log_z, recalled[0], settings.grids[0], settings.by_cutoff)
    main, memory = reads[settings.by_cutoff.index(settings.points[0])]
    return main, [memory], [-summed(read) for read, _ in reads]


def _nothing(row: MemoryRow, settings: Settings, like: Tensor, with_correct: bool) -> RowScores:
    """The scores of no token."""
    return RowScores(
        log_p=like.new_empty(0),
        log_p_mem=like.new_empty(0, len(row.plans)),
        nll_by_cutoff=np.zeros(len(settings.by_cutoff)),
        first_hits=like.new_empty(0, dtype=torch.int64),
        correct=like.new_empty(0, dtype=torch.bool) if with_correct else None,
    )


def _joined(parts: Sequence[RowScores]) -> RowScores:
    """The scores of tokens that follow each other."""
    correct = [part.correct for part in parts if part.correct is not None]
    return RowScores(
        torch.cat([part.log_p for part in parts]),
        torch.cat([part.log_p_mem for part in parts]),
        np.sum([part.nll_by_cutoff for part in parts], axis=0),
        torch.cat([part.first_hits for part in parts]),
        torch.cat(correct) if correct else None,
    )


def _beside(parts: Sequence[Masses]) -> Masses:
    """Masses [S, C, …] of tokens that follow each other."""
    joined = (torch.cat([getattr(part, name) for part in parts], -1) for name in ("target", "total", "peak"))
    return Masses(*joined)


def summed(values: Tensor) -> float:
    """The sum in float64."""
    return float(values.sum(dtype=torch.float64))
