"""Scores ranges of a split with a model and with every row of memory readings on top of it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.encode import EncodedBlock
from stages.evaluation.grids import Point, ReadingGrid, Recalled, compose, grid_nll, read_points
from stages.evaluation.retrieval import Found, Retrieval
from stages.evaluation.rows import Datastore, MemoryRow
from stages.evaluation.scoring import Scored, score_blocks, search_keys
from stages.memory.cells import first_hit
from stages.models.language_model import LanguageModel

SAMPLE_RANGES = 8
SAMPLE_TOKENS = 128

Encode = Callable[[LanguageModel, str, int, int], Iterator[EncodedBlock]]
"""Encodes tokens [start, stop) of a split with a model."""


@dataclass(frozen=True)
class ExternalMemory:
    """A datastore, how its neighbours are found, and the model that made its keys.

    `encode` is how keys are made if that is another model than the one evaluated: in the datastore's windows.
    """

    datastore: Datastore
    retrieval: Retrieval
    encoder: LanguageModel
    encode: Encode
    key: str
    dtype: str


@dataclass(frozen=True)
class Consulted:
    """n tokens scored by the model alone, with their neighbours and, where needed, their keys."""

    scored: Scored
    found: Found
    keys: np.ndarray | None


@dataclass(frozen=True)
class Settings:
    """What a row is read with: a point a reading; for a lone one also a point for each cut-off."""

    grids: Sequence[ReadingGrid]
    points: Sequence[Point]
    by_cutoff: Sequence[Point]


@dataclass
class RowScores:
    """n tokens read by a row: sums over all of them, and log-probabilities of each."""

    log_p: Tensor
    log_p_mem: Tensor
    nll_by_cutoff: np.ndarray
    first_hits: Tensor
    seconds: float


@dataclass(frozen=True)
class Passage:
    """n tokens of the scored split: by the model alone, and by each row with the seconds it took."""

    scored: Scored
    rows: list[RowScores]
    seconds: list[float]
    """The model alone, then every row with all that it needs."""


@dataclass(frozen=True)
class Evaluator:
    """A model, the way it reads a split, and the rows of memory on top; `external` None: no rows."""

    model: LanguageModel
    encode: Encode
    rows: tuple[MemoryRow, ...]
    external: ExternalMemory | None

    def score(self, split: str, start: int, stop: int, settings: Sequence[Settings]) -> Passage:
        """Score tokens [start, stop) with the model alone and with every row at its settings."""
        if not self.rows:
            started = time.perf_counter()
            blocks = self.encode(self.model, split, start, stop)
            scored = score_blocks(self.model, blocks, None, "float32")
            return Passage(scored, [], [time.perf_counter() - started])
        consulted, (alone, retrieval) = self.consult(split, start, stop)
        rows = [self._read(consulted, *pair) for pair in zip(self.rows, settings, strict=True)]
        seconds = [alone, *(alone + retrieval + row.seconds for row in rows)]
        return Passage(consulted.scored, rows, seconds)

    def consult(self, split: str, start: int, stop: int) -> tuple[Consulted, list[float]]:
        """Score tokens and find their neighbours; with the seconds that each of the two took.

        Stored neighbours are read while the model works.
        """
        memory, where = self._memory(), (split, start, stop)
        started = time.perf_counter()
        own = self._needs_keys and memory.encoder is self.model
        with ThreadPoolExecutor(1) as background:
            early = not memory.retrieval.needs_keys
            reading = background.submit(memory.retrieval.find, *where, None) if early else None
            blocks = self.encode(self.model, *where)
            scored = score_blocks(self.model, blocks, memory.key if own else None, memory.dtype)
            between = time.perf_counter()
            keys = scored.keys if own else self._foreign_keys(*where)
            found = reading.result() if reading else memory.retrieval.find(*where, keys)
        return Consulted(scored, found, keys), [between - started, time.perf_counter() - between]

    def _foreign_keys(self, split: str, start: int, stop: int) -> np.ndarray | None:
        """Keys that another model than the one evaluated makes of tokens, if any are needed."""
        if not self._needs_keys:
            return None
        memory = self._memory()
        blocks = memory.encode(memory.encoder, split, start, stop)
        return np.concatenate([search_keys(b, memory.key, memory.dtype) for b in blocks])

    def sample_spreads(self, split: str, total: int) -> list[list[float]]:
        """For each row and reading, how far scores spread, on a sample of a split of `total` tokens."""
        datastore = self._memory().datastore
        parts = [self.consult(split, *where)[0] for where in sample_ranges(total)]
        found = Found(
            np.concatenate([part.found.ids for part in parts]),
            np.concatenate([part.found.distances for part in parts]),
        )
        keys = np.concatenate([part.keys for part in parts]) if self._needs_keys else None
        return [row.spreads(datastore, found, keys) for row in self.rows]

    def tune(self, consulted: Consulted, row: MemoryRow, grids: Sequence[ReadingGrid]) -> np.ndarray:
        """Summed negative log-likelihood at every point of a row's grid; see `grid_nll`."""
        scored, total = consulted.scored, np.zeros([n for grid in grids for n in grid.shape])
        for part, recalled in self._recall(consulted, row):
            total += grid_nll(scored.log_p[part], scored.log_z[part], recalled, grids)
        return total

    def _read(self, consulted: Consulted, row: MemoryRow, settings: Settings) -> RowScores:
        """Read a row's memory at its settings."""
        started = time.perf_counter()
        log_p, log_p_mem, first_hits = [], [], []
        by_cutoff = np.zeros(len(settings.by_cutoff))
        for part, recalled in self._recall(consulted, row):
            alone = consulted.scored.log_p[part], consulted.scored.log_z[part]
            read, memory, sums = _read_chunk(*alone, recalled, settings)
            log_p.append(read)
            log_p_mem.append(torch.stack(memory, dim=-1))
            first_hits.append(first_hit(recalled[0].hits, len(read), row.plans[0].k))
            by_cutoff += sums
        return RowScores(
            torch.cat(log_p),
            torch.cat(log_p_mem),
            by_cutoff,
            torch.cat(first_hits),
            time.perf_counter() - started,
        )

    @property
    def _needs_keys(self) -> bool:
        recomputed = any(plan.recompute for row in self.rows for plan in row.plans)
        return recomputed or self._memory().retrieval.needs_keys

    def _memory(self) -> ExternalMemory:
        assert self.external is not None, "rows of memory readings need a datastore"
        return self.external

    def _recall(self, consulted: Consulted, row: MemoryRow) -> Iterator[tuple[slice, list[Recalled]]]:
        return row.recall(self._memory().datastore, consulted.found, consulted.keys, consulted.scored.targets)


def _read_chunk(
    log_p: Tensor, log_z: Tensor, recalled: Sequence[Recalled], settings: Settings
) -> tuple[Tensor, list[Tensor], list[float]]:
    """log p [n], log p_mem of each reading [n], and summed nats for each cut-off of a lone one."""
    if not settings.by_cutoff:
        return *compose(log_p, log_z, recalled, settings.grids, settings.points), []
    reads = read_points(log_p, log_z, recalled[0], settings.grids[0], settings.by_cutoff)
    main, memory = reads[settings.by_cutoff.index(settings.points[0])]
    return main, [memory], [-_summed(read) for read, _ in reads]


def sample_ranges(total: int) -> list[tuple[int, int]]:
    """A few short ranges spread evenly over `total` tokens."""
    starts = np.linspace(0, max(0, total - SAMPLE_TOKENS), SAMPLE_RANGES).astype(int)
    return [(start, min(start + SAMPLE_TOKENS, total)) for start in sorted(set(starts.tolist()))]


def part_record(passage: Passage, outside: np.ndarray | None, accuracy_at: Sequence[int]) -> dict[str, Any]:
    """What the report needs of a range of tokens; see `stages.evaluation.report.Totals`.

    Args:
        outside: bool [n], tokens in no paragraph that stands in the training text, if known.
        accuracy_at: numbers of neighbours K for which retrieval accuracy is counted.
    """
    log_p = [passage.scored.log_p, *(row.log_p for row in passage.rows)]
    rows = passage.rows
    return {
        "nll": [-_summed(values) for values in log_p],
        "nll_outside": None
        if outside is None
        else [-_summed(values[torch.from_numpy(outside).to(values.device)]) for values in log_p],
        "tokens_outside": 0 if outside is None else int(outside.sum()),
        "nll_by_cutoff": rows[0].nll_by_cutoff.tolist() if rows else [],
        "hits": {str(k): int((rows[0].first_hits < k).sum()) for k in accuracy_at} if rows else {},
        "seconds": passage.seconds,
    }


def _summed(values: Tensor) -> float:
    return float(values.sum(dtype=torch.float64))


def token_scores(passage: Passage) -> Mapping[str, np.ndarray]:
    """The arrays of `scores.zarr` for n tokens; natural logs, float32."""
    scored, main = passage.scored, passage.rows[0] if passage.rows else None
    alone = scored.log_p.cpu().numpy()
    arrays = {
        "target": scored.targets.to(torch.int32).cpu().numpy(),
        "logp": alone if main is None else main.log_p.cpu().numpy(),
        "logp_lm": alone,
        "log_z": scored.log_z.cpu().numpy(),
    }
    if main is not None:
        arrays["logp_memory"] = main.log_p_mem.cpu().numpy()
    return arrays
