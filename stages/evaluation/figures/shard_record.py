"""Records of a scored range: sums for the report, and the scores of its tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from stages.evaluation.figures.breakdown import Breakdown
from stages.evaluation.figures.frequency import Frequencies
from stages.evaluation.figures.learned_weight import EDGES
from stages.evaluation.range_scores import RangeScores, RowScores
from stages.metrics import finite


def shard_record(scores: RangeScores, start: int, stop: int, breakdown: Breakdown) -> dict[str, Any]:
    """Sums of tokens [start, stop) that the report needs, JSON; see `stages.evaluation.figures.report.Totals`.

    Sums are in float64; None stands for one that is not a finite number.

    Args:
        scores: of the c tokens of them that count.
    """
    each: list[RangeScores | RowScores] = [scores, *scores.rows]
    nll = scores.nll()
    targets, accuracy = scores.targets.cpu().numpy(), breakdown.accuracy
    new = None if breakdown.matched is None else breakdown.matched.new[start:stop]
    wrong, outside = None, None if breakdown.outside is None else breakdown.outside[start:stop]
    if breakdown.last_words is not None:
        wrong = [breakdown.last_words.wrong_passages(start, stop, _numpy(one.columns["correct"])) for one in each]
        counted = breakdown.last_words.scored(start, stop)
        outside, new = (None if mask is None else mask[counted] for mask in (outside, new))
    return {
        "tokens": len(targets),
        "nll": [finite(float(one.sum())) for one in nll],
        "nll_outside": None if outside is None else [finite(float(one[outside].sum())) for one in nll],
        "tokens_outside": 0 if outside is None else int(outside.sum()),
        **({} if new is None else _of("new", new, nll)),
        **_of_unknown(breakdown.unknown_id, targets, nll),
        **({} if breakdown.ends is None else _of("ends", breakdown.ends[start:stop], nll)),
        "nll_by_cutoff": [[finite(value) for value in row.sums["nll_by_cutoff"].tolist()] for row in scores.rows],
        **_by_frequency(breakdown.frequencies, targets, nll),
        "matches": {str(k): int((scores.rows[accuracy.row].columns["first_matches"] < k).sum()) for k in accuracy.at},
        "wrong": wrong,
        "probes": {name: seen.record for name, seen in scores.observations.items()},
        "seconds": scores.seconds,
        **_learned(scores.rows),
    }


def _of_unknown(unknown_id: int | None, targets: np.ndarray, nll: Sequence[np.ndarray]) -> dict[str, Any]:
    unknown = targets == unknown_id
    sums = None if unknown_id is None else [finite(float(one[unknown].sum())) for one in nll]
    return {"tokens_unknown": int(unknown.sum()), "nll_unknown": sums}


def _of(name: str, some: np.ndarray, nll: Sequence[np.ndarray]) -> dict[str, Any]:
    return {f"tokens_{name}": int(some.sum()), f"nll_{name}": [finite(float(one[some].sum())) for one in nll]}


def _by_frequency(
    frequencies: Frequencies | None, targets: np.ndarray, nll: Sequence[np.ndarray]
) -> dict[str, list[Any] | None]:
    if frequencies is None:
        return {"bucket_tokens": None, "bucket_nll": None}
    return {
        "bucket_tokens": frequencies.tokens(targets),
        "bucket_nll": [[finite(value) for value in frequencies.sums(targets, one)] for one in nll],
    }


def _learned(rows: Sequence[RowScores]) -> dict[str, Any]:
    """Size of the first row's learned weights, and gains by searches; empty where nothing is learned."""
    record: dict[str, Any] = {}
    if rows and "weights" in rows[0].columns:
        weights = _numpy(rows[0].columns["weights"].double())
        record["weights"] = {"sum": float(weights.sum()), "counts": np.histogram(weights, EDGES)[0].tolist()}
    if rows and "by_gain" in rows[0].sums:
        record["by_gain"] = rows[0].sums["by_gain"].tolist()
    return record


def _numpy(column: Tensor) -> np.ndarray:
    return column.cpu().numpy()


def token_scores(scores: RangeScores) -> Mapping[str, np.ndarray]:
    """The arrays of `scores.zarr` for c tokens; natural logs, float32."""
    main: RowScores | None = scores.rows[0] if scores.rows else None
    alone = scores.log_p.cpu().numpy()
    arrays = {
        "target": scores.targets.int().cpu().numpy(),
        "logp": alone if main is None else main.log_p.cpu().numpy(),
        "logp_lm": alone,
        "log_z": scores.columns["log_z"].cpu().numpy(),
    }
    for seen in scores.observations.values():
        arrays |= {name: column.cpu().numpy() for name, column in seen.columns.items()}
    if main is not None:
        arrays["logp_memory"] = main.log_p_mem.cpu().numpy()
    return arrays
