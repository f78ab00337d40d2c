"""The content of a report's `metrics.json`, with the row of a baseline above its own rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Job
from stages.diagnostics.probe import Probe
from stages.evaluation.baseline import baseline_row
from stages.evaluation.book_rows import book_figures
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.costs import COSTS_NOTHING, cost_of_row
from stages.evaluation.figures import report
from stages.evaluation.figures.breakdown import chance_accuracy, type_counts
from stages.evaluation.figures.conditions import condition_figures
from stages.evaluation.figures.control import (
    Counting,
    Reads,
    RowControl,
    learned_text_figures,
    row_controls,
)
from stages.evaluation.figures.intervals import UnitSums, change_intervals, control_intervals
from stages.evaluation.figures.places import counted_tokens
from stages.evaluation.learning import learning_figures
from stages.evaluation.plan import Plan
from stages.evaluation.row_weights import RowWeights
from stages.methods import METHODS
from stages.methods.config import TRAIN
from stages.metrics import Counts, figures
from stages.models.config import model_of
from stages.reports.fields import BESIDE_BOOK, GATED, PLAIN, SHUT
from stages.retrieval.book_input import BOOK
from stages.retrieval.inputs import neighbor_values
from stages.retrieval.rows import MemoryRow
from stages.text.form import differences

TRAINING_TEXT = "the training text"
"""Name of the control that counts there alone, among those of rows."""


@dataclass(frozen=True)
class _Evaluation:
    """Everything that the figures of a report follow from."""

    job: Job[EvaluateConfig]
    plan: Plan
    memory: Sequence[MemoryRow]
    weights: RowWeights
    records: Sequence[Mapping[str, Any]]
    probes: Mapping[str, Probe]
    shown: Mapping[str, Any]
    """Figures of probes, by name."""

    @property
    def config(self) -> EvaluateConfig:
        return self.job.config

    @property
    def read(self) -> Mapping[str, Artifact]:
        """The artifacts that were read, by role."""
        return self.job.inputs.artifacts

    @property
    def text(self) -> Mapping[str, Any]:
        """Metrics of the scored tokens."""
        return self.read["tokens"].metrics

    @property
    def split_tokens(self) -> int:
        return int(self.text["splits"][self.config.split]["tokens"])

    @cached_property
    def totals(self) -> report.Totals:
        return report.Totals.of(self.records)

    @cached_property
    def counts(self) -> Counts:
        return _counts(self.job, self.plan)

    @cached_property
    def names(self) -> list[str]:
        """Names of the rows: the model, with its gate, its learning or its book, and each memory."""
        first = GATED if model_of(self.read["model"]).reads_neighbors else PLAIN
        return [self.config.above or first, *(row.name for row in self.memory)]

    @property
    def beside(self) -> Sequence[str]:
        """Names of the rows behind those of memory, with which the model is compared."""
        return () if self.config.open_book is None else BESIDE_BOOK

    @property
    def all_names(self) -> list[str]:
        """Names of all rows whose scores were added up."""
        return [*self.names, *self.beside]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, with what they cost."""
        rows = report.table(
            self.all_names,
            [*self.weights.memories(), *([] for _ in self.beside)],
            self.totals,
            self.counts,
            self.split_tokens,
            self.text["vocabulary_size"],
        )
        costs = [cost_of_row(self.job, row) for row in (None, *self.memory)]
        costs += [COSTS_NOTHING for _ in self.beside]
        return [row | cost for row, cost in zip(rows, costs, strict=True)]


def metrics_of(
    job: Job[EvaluateConfig],
    plan: Plan,
    memory: Sequence[MemoryRow],
    weights: RowWeights,
    records: Sequence[Mapping[str, Any]],
    probes: Mapping[str, Probe],
    shown: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of `metrics.json`.

    Figures of the main row stand at the top level too: of the first memory, or of the model alone.

    Args:
        memory: the rows of memories, behind that of the model.
        records: sums of each shard of the scored split.
        shown: figures of `probes`, by name.
    """
    evaluation = _Evaluation(job, plan, memory, weights, records, probes, shown)
    rows = evaluation.rows
    main_row = rows[1] if memory else rows[0]
    main_figures = {name: value for name, value in main_row.items() if name != "row"}
    return {
        **_text_figures(evaluation),
        **main_figures,
        **_model_figures(evaluation),
        **_row_figures(evaluation),
        **_learning_figures(evaluation),
        **_book_figures(evaluation),
        **_breakdowns(evaluation),
        **_neighbor_figures(evaluation),
        **_settings_figures(evaluation),
        "read": {role: artifact.reference for role, artifact in evaluation.read.items()},
    }


def _text_figures(evaluation: _Evaluation) -> dict[str, Any]:
    """The scored text: its size, its form, and the tokens that the model does not know."""
    job = evaluation.job
    config = evaluation.config
    names = evaluation.all_names
    totals = evaluation.totals
    unknown = report.without(names, totals, "unknown")
    last_words = evaluation.plan.breakdown.last_words
    return {
        "split": config.split,
        "score": config.score,
        "tokens": evaluation.counts.tokens,
        "words": evaluation.counts.words,
        "unknown_rate": unknown and unknown["rate"],
        "unknown_tokens": unknown,
        "form": form(job.inputs["model"], evaluation.text, config.split),
        "document_ends": _document_ends(job),
        "end_tokens": report.without(names, totals, "ends"),
        **({} if config.exclude is None else {"exclude": config.exclude}),
        **({} if last_words is None else {"unknown_words": last_words.unknown}),
    }


def _model_figures(evaluation: _Evaluation) -> dict[str, Any]:
    """The training of the model."""
    model = evaluation.read["model"]
    passes = None
    if "passes" in model.metrics:
        passes = {name: model.metrics[name] for name in ("passes", "still_falling")}
    return {
        "method": model.config["method"],
        "training": passes,
        "valid_perplexity": _valid_perplexity(evaluation.job),
    }


def _row_figures(evaluation: _Evaluation) -> dict[str, Any]:
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
    intervals = None
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


def _own_baseline(evaluation: _Evaluation, row: Mapping[str, Any]) -> dict[str, Any]:
    """The plain model beside an open book, as a baseline like that of another report."""
    outside = _outside_repeated(evaluation)
    return {
        "report": None,
        "model": evaluation.read["model"].reference,
        "method": evaluation.read["model"].config["method"],
        "row": row,
        "differs": [],
        "outside_repeated_paragraphs": outside and {**outside, "rows": outside["rows"][-1:]},
    }


def _outside_repeated(evaluation: _Evaluation) -> dict[str, Any] | None:
    """Figures of all rows outside of paragraphs that were read before."""
    repeated = evaluation.plan.breakdown.repeated
    return report.outside_repeated_paragraphs(evaluation.all_names, evaluation.totals, repeated)


def _controls(
    evaluation: _Evaluation, shut: Sequence[Mapping[str, Any]]
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


def _learning_figures(evaluation: _Evaluation) -> dict[str, Any]:
    """Figures of learning while the text is scored, and of the conditions of an example."""
    config = evaluation.config
    draft = evaluation.job.draft
    parts = evaluation.plan.scoring.parts
    conditions = [record["conditions"] for record in evaluation.records if "conditions" in record]
    return {
        "adaptation": config.dynamic
        and learning_figures(
            config.dynamic,
            draft.record,
            config.tune_split,
            evaluation.records[-1]["diverged_at"],
        ),
        "conditions": condition_figures(
            conditions,
            evaluation.names,
            config.precision,
            [(part.start, part.stop) for part in parts],
        ),
    }


def _book_figures(evaluation: _Evaluation) -> dict[str, Any]:
    """Figures of an open book; empty without one."""
    settings = evaluation.config.open_book
    if settings is None:
        return {}
    book = evaluation.read[BOOK.role].reference
    figures = book_figures(settings.model_dump(), evaluation.records, book, evaluation.split_tokens)
    return {"open_book": figures}


def _breakdowns(evaluation: _Evaluation) -> dict[str, Any]:
    """Figures of parts of the text: outside of repeated text, and by frequency."""
    names = evaluation.all_names
    totals = evaluation.totals
    breakdown = evaluation.plan.breakdown
    counted = counted_tokens(breakdown.last_words, 0, evaluation.split_tokens)
    return {
        "outside_repeated_paragraphs": _outside_repeated(evaluation),
        "outside_matches": report.outside_matches(names, totals, breakdown.matched, counted),
        "frequency_buckets": report.frequency_buckets(names, totals, breakdown.frequencies),
    }


def _neighbor_figures(evaluation: _Evaluation) -> dict[str, Any]:
    """Figures of the search for neighbours, and of a learned weight."""
    totals = evaluation.totals
    records = evaluation.records
    # Of the best K neighbours, by K; None if not counted.
    accuracy = {k: matches / totals.tokens for k, matches in totals.matches.items()} or None
    by_chance = accuracy and _by_chance(evaluation.job, evaluation.plan, [int(k) for k in accuracy])
    result: dict[str, Any] = {
        "retrieval_accuracy": accuracy,
        "retrieval_accuracy_by_chance": by_chance,
    }
    learned = evaluation.weights.learned()
    if learned is not None:
        result["learned_weight"] = report.learned_figures(
            evaluation.memory[0], learned, records, totals
        )
    if "searches" in records[0]:
        searches = sum(record["searches"] for record in records)
        result["searched_share"] = searches / evaluation.split_tokens
    return result


def _settings_figures(evaluation: _Evaluation) -> dict[str, Any]:
    """Perplexities by the values of settings that were tried, and figures of probes."""
    weights = evaluation.weights
    shown = evaluation.shown
    varied = [
        curve
        for name in shown
        for curve in evaluation.probes[name].curves(shown[name], evaluation.names[0])
    ]
    return {
        "curves": [*report.curves(weights.curves(), evaluation.totals), *varied],
        **{"gate": None, **shown},
        "grid": weights.grid(),
    }


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


def form(model: Artifact, scored: Mapping[str, Any], split: str) -> list[str]:
    """Differences in form between the model's training text and a split; none for an imported
    model.

    Args:
        scored: metrics of the tokens that the split belongs to.
    """
    splits = model.input("tokens").metrics["splits"]
    if TRAIN not in splits or "steps" not in model.config:
        return []
    learned = TRAIN if scored["splits"].get(TRAIN) == splits[TRAIN] else "the text of the model"
    return differences(split, splits[TRAIN], scored["splits"][split], learned)


def _document_ends(job: Job[EvaluateConfig]) -> float | None:
    """Share of the scored split's tokens that are the `<eos>` of a document; None if documents end
    without one.
    """
    tokens = job.inputs["tokens"].metrics
    split = job.inputs["tokens"].metrics["splits"][job.config.split]
    if job.config.score != "all" or tokens["eos_after"] != "document":
        return None
    return float(split["documents"] / split["tokens"])


def _valid_perplexity(job: Job[EvaluateConfig]) -> float | None:
    """Perplexity on `valid` at the end of training; None if it is not comparable with the first
    row.
    """
    model = job.inputs["model"]
    config = job.config
    method = model.config["method"]
    if method not in METHODS or METHODS.settings(method).evaluation.trained_with_memory:
        return None
    if model.input("tokens").reference != job.inputs["tokens"].reference:
        return None
    if config.score != "all" or config.split in ("train", "valid"):
        return None
    return model.metrics.get("valid_perplexity")


def _by_chance(job: Job[EvaluateConfig], plan: Plan, at: Sequence[int]) -> dict[str, float]:
    """Retrieval accuracy of K rows of the datastore drawn at random, by K in `at`."""
    tokens = job.inputs["tokens"]
    vocabulary = tokens.metrics["vocabulary_size"]
    ids: Any = tokens.zarr("tokens.zarr")[f"{job.config.split}/ids"]
    words = plan.breakdown.last_words
    counted = ids if words is None else ids[:][words.scored(0, ids.shape[0])]
    stored = neighbor_values(job.inputs.artifacts)
    stored_counts = type_counts(stored, vocabulary)
    return chance_accuracy(stored_counts, type_counts(counted, vocabulary), at)


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


def _counts(job: Job[EvaluateConfig], plan: Plan) -> Counts:
    """Counts of the scored text: the split, or the last words of its passages."""
    words = plan.breakdown.last_words
    if words is None:
        return Counts.of(job.inputs["tokens"].metrics["splits"][job.config.split])
    return Counts(tokens=words.tokens, characters=0, bytes=0, words=words.passages)
