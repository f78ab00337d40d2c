"""The rows of a report, with their controls and the intervals of their changes."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from stages.artifacts.stage import Job
from stages.evaluation.baseline import baseline_row
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.evaluation import Evaluation
from stages.evaluation.figures import report
from stages.evaluation.figures.control import (
    Counting,
    Reads,
    RowControl,
    learned_text_figures,
    row_controls,
)
from stages.evaluation.figures.intervals import UnitSums, change_intervals, control_intervals
from stages.evaluation.plan import Plan
from stages.metrics import Counts, figures
from stages.reports.fields import SHUT
from stages.retrieval.book_input import BOOK

TRAINING_TEXT = "the training text"
"""Name of the control that counts there alone, among those of rows."""


def row_figures(evaluation: Evaluation) -> dict[str, Any]:
    """All rows, each with its control by counting, and intervals of their changes."""
    job = evaluation.job
    plan = evaluation.plan
    read = evaluation.read
    names = evaluation.all_names
    # The gate's probe counts all tokens, so it has no figure of last words.
    whole = evaluation.config.score == "all"
    shut = _gate_shut(evaluation.shown, evaluation.counts) if whole else []
    sums = _unit_sums(job, plan)
    controls = _controls(evaluation, shut)
    baseline = baseline_row(read["baseline"], read["model"]) if "baseline" in read else None
    rows = _with_controls((*evaluation.rows, *shut), names, controls, sums)
    if baseline is None and evaluation.beside:
        # The plain model is what an open book is compared with: it is the last row of all.
        plain = rows.pop()
        baseline = _own_baseline(evaluation, plain)
        others = UnitSums(sums.nll[:, :-1], sums.tokens)
        plain_sums = UnitSums(sums.nll[:, -1:], sums.tokens)
        intervals = change_intervals(names[:-1], others, plan.unit_files.units, plain_sums)
    else:
        intervals = _change_intervals(job, plan, names, sums)
    return {
        "trigram": learned_text_figures(controls[TRAINING_TEXT].figures),
        "rows": rows,
        "baseline": baseline,
        "change_intervals": intervals,
    }


def _own_baseline(evaluation: Evaluation, row: Mapping[str, Any]) -> dict[str, Any]:
    """The plain model beside an open book, as a baseline like that of another report."""
    outside = outside_repeated(evaluation)
    return {
        "report": None,
        "model": evaluation.read["model"].reference,
        "method": evaluation.read["model"].config["method"],
        "row": row,
        "differs": [],
        "outside_repeated_paragraphs": outside and {**outside, "rows": outside["rows"][-1:]},
    }


def outside_repeated(evaluation: Evaluation) -> dict[str, Any] | None:
    """Figures of all rows outside of paragraphs that were read before."""
    repeated = evaluation.plan.breakdown.repeated
    return report.outside_repeated_paragraphs(evaluation.all_names, evaluation.totals, repeated)


def _controls(
    evaluation: Evaluation, shut: Sequence[Mapping[str, Any]]
) -> Mapping[str, RowControl]:
    """Controls of each row: counting in the texts that it reads; `shut`: the row of a shut gate."""
    config = evaluation.config
    plan = evaluation.plan
    dynamic = config.dynamic
    counting = Counting(
        evaluation.read,
        config.split,
        config.tune_split,
        config.reset,
        plan.breakdown.outside,
        plan.last_words,
        learned_past=dynamic.scope if dynamic is not None and dynamic.learns else None,
        model_roles=() if config.open_book is None else (BOOK.role,),
    )
    reads = {}
    own_rows = evaluation.rows[: 1 + len(evaluation.memory)]
    for row, memory in zip(own_rows, (None, *evaluation.memory), strict=True):
        reads[row["row"]] = counting.reads(memory, row["memories"])
    # The model without a neighbour and without a book reads its training text alone.
    for name in (*(row["row"] for row in shut), *evaluation.beside, TRAINING_TEXT):
        reads[name] = Reads()
    return row_controls(counting, config.count_orders or (), reads, plan.unit_files)


def _gate_shut(shown: Mapping[str, Any], counts: Counts) -> list[dict[str, Any]]:
    """The row of the same model without a neighbour, the control of a gate; empty without a gate."""
    gate = shown.get("gate") or {}
    for reading in gate.get("by_neighbors", ()):
        if not reading["neighbors"]:
            # JSON has no infinity: None stands for it.
            diverged = reading["nll"] is None
            nll = inf if diverged else reading["nll"]
            row = {"row": SHUT, **figures(nll, counts), "diverged": diverged}
            return [{**row, "tokens_per_second": None, "memories": []}]
    return []


def _with_controls(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    controls: Mapping[str, RowControl],
    sums: UnitSums,
) -> list[dict[str, Any]]:
    """Rows with their controls, and with intervals of their changes against them.

    Args:
        names: names of the rows of `sums`.
        sums: sums of rows over documents or blocks.
    """
    nothing = np.full(sums.nll[:, 0].shape, np.nan)
    nats = [controls[name].nats for name in names]
    stacked = np.stack([nothing if row is None else row for row in nats], axis=1)
    intervals = dict(zip(names, control_intervals(sums, stacked), strict=True))
    result = []
    for row in rows:
        control = controls[row["row"]].figures
        if control is not None:
            everywhere, on_new_text = intervals.get(row["row"], (None, None))
            control |= {"interval": everywhere, "interval_on_new_text": on_new_text}
        result.append({**row, "control": control})
    return result


def _unit_sums(job: Job[EvaluateConfig], plan: Plan) -> UnitSums:
    """Sums of all rows over the documents or blocks of the scored split."""
    shards = plan.scoring
    return plan.unit_files.read(job.draft.path, [shards.number(part) for part in shards.parts])


def _change_intervals(
    job: Job[EvaluateConfig], plan: Plan, names: Sequence[str], sums: UnitSums
) -> dict[str, Any] | None:
    """Intervals of each row's change against the first row, or the baseline's; None if they cannot
    be computed.
    """
    files = plan.unit_files
    if "baseline" not in job.inputs:
        return change_intervals(names, sums, files.units)
    baseline = files.of_baseline(job.inputs["baseline"])
    return None if baseline is None else change_intervals(names, sums, files.units, baseline)
