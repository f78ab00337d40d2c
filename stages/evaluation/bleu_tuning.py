"""Numbers of memory chosen by BLEU: each point of a grid translates the first sentences of the tuning split."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stages.artifacts.stage import ShardJob
from stages.errors import UsageError
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures.bleu import corpus_scores
from stages.evaluation.plan import Part, Plan
from stages.evaluation.range_reader import RangeReader
from stages.evaluation.row_weights import RowWeights
from stages.evaluation.translations import open_row, sentences
from stages.lineage.corpus import token_text
from stages.retrieval.reading import Reading
from stages.retrieval.weights.grid import Grid

MOST_POINTS = 32


def require_few_points(readings: Sequence[Reading]) -> None:
    """Refuse what is no small grid of one completed reading. Raises: UsageError that says what is legal."""
    problem = _problem(readings)
    if problem is not None:
        raise UsageError(
            f"--tune-by bleu: {problem}. It translates once a point, at most {MOST_POINTS}, of one reading's lists: "
            "--memory external:k=8/16,temperature=10/100,lambda=0.4/0.6/0.8."
        )


def _problem(readings: Sequence[Reading]) -> str | None:
    """The reason why readings are no small grid; None: they are one."""
    if len(readings) > 1:
        return f"{len(readings)} readings stand on top of each other"
    if not any(one.choices for one in readings):
        return "nothing is tuned"
    (reading,) = readings
    numbers = {name: reading.value(name) for name in reading.tunable}
    if left := [name for name, value in numbers.items() if isinstance(value, str)]:
        return f"{' and '.join(left)} of {'+'.join(reading.sources)} is no list of numbers"
    points = math.prod(len(value) for value in numbers.values() if isinstance(value, tuple))
    return f"{points:,} points are too many" if points > MOST_POINTS else None


def try_point(job: ShardJob[EvaluateConfig], reader: RangeReader, weights: RowWeights, part: Part) -> dict[str, Any]:
    """The record of a shard: BLEU of the first sentences, translated with a row at one point of its grid."""
    split, policy = job.config.tune_split, weights.policies(weights.first)[part.row - 1]
    assert split is not None and isinstance(policy, Grid), "numbers of a grid are tuned"
    translator = open_row(job, reader, policy.at(policy.candidates[part.candidate]), split)
    text = token_text(job.inputs["tokens"])
    sources, targets = (sentences(job, split, side, part.start, part.stop) for side in ("source", "target"))
    found = [translator.text_of(one.tokens) for one in translator.translate(sources, part.start)]
    references = [text.decoded(ids[:-1].tolist()) for ids in targets]
    return {"bleu": corpus_scores(found, references, job.config.bleu).bleu}


def best_points(job: ShardJob[EvaluateConfig], plan: Plan) -> dict[int, int]:
    """The candidate of each row, from 0, that has the highest BLEU, the first of equals; none where none was tried."""
    return {row: scores.index(max(scores)) for row, scores in _scores(job, plan).items()}


def bleu_figures(job: ShardJob[EvaluateConfig], plan: Plan, weights: RowWeights) -> dict[str, Any]:
    """The `bleu` of `tuning` in `metrics.json`: every candidate of every row; empty where none was tried."""
    if not plan.tries:
        return {}
    rows = []
    for row, scores in _scores(job, plan).items():
        policy = weights.policies()[row]
        assert isinstance(policy, Grid)
        points = policy.describe_points([policy.grids[0].point_at(*one) for one in policy.candidates])
        tried = [{**point, "bleu": score} for point, score in zip(points, scores, strict=True)]
        rows.append({"row": policy.row.name, "candidates": tried})
    return {"bleu": {"sentences": plan.tries[0].stop, "rows": rows}}


def _scores(job: ShardJob[EvaluateConfig], plan: Plan) -> Mapping[int, list[float]]:
    found: dict[int, list[float]] = {}
    for part in plan.tries:
        found.setdefault(part.row - 1, []).append(job.record(part.key)["bleu"])
    return found
