"""Scoring of a range by the model alone and by every row, with the weights of its policy; sums for
the report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.encoding.probe import Observation
from stages.encoding.scoring import DENSE_SCORES, LMScores
from stages.evaluation.figures.breakdown import Breakdown
from stages.evaluation.figures.places import counted_tokens, is_best
from stages.evaluation.figures.report import EDGES
from stages.evaluation.range_reader import RangeReader, RangeResult
from stages.metrics import finite
from stages.models.computing import Stopwatch
from stages.models.language_model import LanguageModel
from stages.reports.measures import MEASURES
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.composition import Weight
from stages.retrieval.weights.policy import WeightPolicy


@dataclass(frozen=True)
class RowScores:
    """Scores of a row for c counted tokens: columns with a number for each token, and `sums` over
    all tokens.

    Columns: `log_p` [c], in nats. `correct` [c]: whether the target is the argmax, if last words
    count. Of the model alone also `log_z` [c]; of memory also `log_p_mem` [c, readings], in nats,
    and `first_matches` [c]: place of the first reading's first entry with the target. `weights`
    [c]: weights of the last reading, if they are learned by context.
    """

    columns: Mapping[str, Tensor]
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def log_p(self) -> Tensor:
        return self.columns["log_p"]


@dataclass(frozen=True)
class RangeScores:
    """Scores of a range for c counted tokens, by the model alone and by each row; `targets` int64
    [c].
    """

    targets: Tensor
    alone: RowScores
    rows: list[RowScores]
    seconds: list[float]
    """Seconds of the model alone, then of every row with all that it needs."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    """Observations of each probe, by its name."""
    searches: int | None = None
    """Number of tokens that were searched for, if the others follow pointers."""

    beside: Sequence[RowScores] = ()
    """Rows that the model is compared with, behind those of memory: beside an open book."""
    beside_seconds: Sequence[float] = ()
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """Further columns to save, [c] each, by name."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """Further sums for the report, JSON."""

    @property
    def everything(self) -> list[RowScores]:
        """All rows: the model alone, those of memory, and those beside them."""
        return [self.alone, *self.rows, *self.beside]

    @property
    def final(self) -> RowScores:
        """The first row of memory; without memory the model alone."""
        return self.rows[0] if self.rows else self.alone

    def nll(self) -> list[np.ndarray]:
        """Negative log-likelihoods of the counted tokens, float64 [c], of all rows."""
        return [-row.log_p.double().cpu().numpy() for row in self.everything]


def shard_record(
    scores: RangeScores, start: int, stop: int, breakdown: Breakdown
) -> dict[str, Any]:
    """Sums over tokens [start, stop) for the report, JSON; see
    `stages.evaluation.figures.report.Totals`.

    Sums are in float64; None means a sum that is not finite.

    Args:
        scores: scores of the c counted tokens.
    """
    # sums in float64: in float32, the last of a million numbers would be lost
    nll = scores.nll()
    targets = scores.targets.cpu().numpy()
    words = breakdown.last_words
    is_counted = counted_tokens(words, start, stop)
    parts = {name: mask[start:stop][is_counted] for name, mask in breakdown.parts.items()}
    if breakdown.unknown_id is not None:
        parts["unknown"] = targets == breakdown.unknown_id

    nll_by_cutoff = [_finite_numbers(row.sums["nll_by_cutoff"]) for row in scores.rows]
    buckets = breakdown.frequencies
    bucket_nll = None
    if buckets is not None:
        bucket_nll = []
        for row_nll in nll:
            bucket_nll.append([finite(value) for value in buckets.sums(targets, row_nll)])

    searching, at = breakdown.accuracy
    matches = {}
    for k in at:
        first_matches = scores.rows[searching].columns["first_matches"]
        matches[str(k)] = int((first_matches < k).sum())

    wrong = None
    if words is not None:
        wrong = []
        for row in scores.everything:
            is_correct = row.columns["correct"].cpu().numpy()
            wrong.append(words.wrong_passages(start, stop, is_correct))

    observations = scores.observations.items()
    record = {
        **_sums(np.ones(len(targets), bool), nll),
        "parts": {name: _sums(mask, nll) for name, mask in parts.items()},
        "nll_by_cutoff": nll_by_cutoff,
        "bucket_tokens": None if buckets is None else buckets.tokens(targets),
        "bucket_nll": bucket_nll,
        "matches": matches,
        "wrong": wrong,
        "probes": {name: observation.record for name, observation in observations},
        "seconds": [*scores.seconds, *scores.beside_seconds],
        **_measures(nll),
        **_learned(scores.rows),
        **scores.record,
    }
    if scores.searches is not None:
        record["searches"] = scores.searches
    return record


def _sums(is_counted: np.ndarray, nll: Sequence[np.ndarray]) -> dict[str, Any]:
    """Number of the tokens marked in `is_counted`, bool [c], and the nats of each row over them."""
    nats = [finite(float(row_nll[is_counted].sum())) for row_nll in nll]
    return {"tokens": int(is_counted.sum()), "nll": nats}


def _finite_numbers(values: np.ndarray) -> list[float | None]:
    return [finite(value) for value in values.tolist()]


def _measures(nll: Sequence[np.ndarray]) -> dict[str, Any]:
    """Sums of each row for measures of single tokens; empty if there is no such measure."""
    sums = {}
    for measure in MEASURES.computed():
        if measure.of_token is not None:
            of_rows = [float(measure.of_token(-row).sum()) for row in nll]
            sums[measure.name] = [finite(total) for total in of_rows]
    return {"of_tokens": sums} if sums else {}


def _learned(rows: Sequence[RowScores]) -> dict[str, Any]:
    """Histogram of the first row's learned weights, and gains by searches; empty if nothing is
    learned.
    """
    record: dict[str, Any] = {}
    if rows and "weights" in rows[0].columns:
        weights = rows[0].columns["weights"].double().cpu().numpy()
        record["weights"] = {
            "sum": float(weights.sum()),
            "counts": np.histogram(weights, EDGES)[0].tolist(),
        }
    if rows and "by_gain" in rows[0].sums:
        record["by_gain"] = rows[0].sums["by_gain"].tolist()
    return record


def token_scores(scores: RangeScores) -> Mapping[str, np.ndarray]:
    """The arrays of `scores.zarr` for c tokens; natural logs, float32."""
    columns = {
        "target": scores.targets.int(),
        "logp": scores.final.log_p,
        "logp_lm": scores.alone.log_p,
        "log_z": scores.alone.columns["log_z"],
    }
    for observation in scores.observations.values():
        columns |= observation.columns
    columns |= scores.columns
    if scores.rows:
        columns["logp_memory"] = scores.final.columns["log_p_mem"]
    return {name: column.cpu().numpy() for name, column in columns.items()}


def score_range(
    reader: RangeReader, result: RangeResult, policies: Sequence[WeightPolicy]
) -> RangeScores:
    """Score a range with the model alone and with every row, each with the weights of its policy."""
    scored_range = result.scored_range
    scored = scored_range.lm
    counted = scored_range.counted_rows
    rows = []
    seconds = [result.model]
    for policy in policies:
        shared = result.seconds(policy.row) + reader.recomputing_seconds(scored_range, policy.row)
        watch = Stopwatch(reader.split_reader.device)
        rows.append(_score_row(reader.model, scored_range, policy))
        seconds.append(shared + watch.lap())
    targets = scored.targets[counted]
    alone = scores_alone(reader.model, scored, counted)
    searches = None if scored_range.neighbors is None else scored_range.neighbors.searches
    windows = scored_range.places.windows
    record = {"inputs": sum(window.stop - window.start for window in windows)}
    return RangeScores(targets, alone, rows, seconds, result.observations, searches, record=record)


def scores_alone(model: LanguageModel, lm: LMScores, counted: Tensor | slice) -> RowScores:
    """The counted tokens of a range by the model alone; `correct` if their hidden states are
    there.
    """
    columns = {"log_p": lm.log_p[counted], "log_z": lm.log_z[counted]}
    if lm.hidden is not None:
        columns["correct"] = _correct(model, lm.hidden, lm.targets[counted], columns["log_z"])
    return RowScores(columns)


def _score_row(model: LanguageModel, scored_range: ScoredRange, policy: WeightPolicy) -> RowScores:
    """Read a row's memory with the weights of its policy."""
    scored = scored_range.lm
    sums = dict(policy.no_sums())
    # empty parts, for a range of which no token counts
    none = scored.log_p[:0]
    parts = {
        "log_p": [none],
        "log_p_mem": [none.new_empty(0, len(policy.row.sources))],
        "first_matches": [none.long()],
    }
    if scored.hidden is not None:
        parts["correct"] = [none.bool()]

    done = 0
    for rows, retrieved in policy.reading_row.retrieve(scored_range):
        reads = policy.read(scored_range, rows, retrieved)
        parts["log_p"].append(reads.log_p)
        parts["log_p_mem"].append(reads.log_p_mem)
        parts["first_matches"].append(retrieved[0].first_matches)
        if isinstance(reads.weights[-1], Tensor):
            parts.setdefault("weights", []).append(reads.weights[-1])
        if scored.hidden is not None:
            hidden = scored.hidden[done : done + len(reads.log_p)]
            memory = (policy, retrieved, reads.weights)
            is_correct = _correct(model, hidden, scored.targets[rows], scored.log_z[rows], memory)
            parts["correct"].append(is_correct)
        sums = {name: sums[name] + more for name, more in reads.sums.items()}
        done += len(reads.log_p)
    columns = {name: torch.cat(tensors) for name, tensors in parts.items()}
    return RowScores(columns, sums)


def _correct(
    model: LanguageModel,
    hidden: Tensor,
    targets: Tensor,
    log_z: Tensor,
    memory: tuple[WeightPolicy, Sequence[Retrieved], Sequence[Weight]] | None = None,
) -> Tensor:
    """Whether each target is the argmax of the final distribution, with memory if there is any,
    bool [c].
    """
    correct = [targets.new_empty(0, dtype=torch.bool)]
    # distributions of all tokens at once would not fit into memory
    step = max(1, DENSE_SCORES // (model.config.vocab_size or 1))
    for start in range(0, len(hidden), step):
        part = slice(start, start + step)
        log_p = model.log_probs(hidden[part])
        if memory is not None:
            policy, retrieved, weights = memory
            log_p = policy.read_dense(log_p, log_z[part], retrieved, part, weights)
        correct.append(is_best(log_p, targets[part]))
    return torch.cat(correct)
