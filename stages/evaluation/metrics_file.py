"""The content of a report's `metrics.json`, with the row of a baseline above its own rows."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Job
from stages.diagnostics.probe import Probe
from stages.evaluation.config import EvaluateConfig
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
from stages.models.config import NEIGHBOR_SETTINGS, model_of
from stages.reports.fields import GATED, PLAIN, SHUT
from stages.retrieval.grammar import DYNAMIC
from stages.retrieval.inputs import neighbor_values
from stages.retrieval.rows import MemoryRow
from stages.text.form import differences

TRAINING_TEXT = "the training text"
"""Name of the control that counts there alone, among those of rows."""


def metrics_of(
    job: Job[EvaluateConfig],
    plan: Plan,
    memory: Sequence[MemoryRow],
    weights: RowWeights,
    records: Sequence[Mapping[str, Any]],
    probes: Mapping[str, Probe],
    shown: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of `metrics.json`, from the `records` of the scored split's shards, and the
    figures of `probes`.
    """
    totals, counts = report.Totals.of(records), _counts(job, plan)
    dynamic = job.config.dynamic
    first = GATED if model_of(job.inputs["model"]).reads_neighbors else PLAIN
    first = first if dynamic is None else DYNAMIC
    names = [first, *(row.name for row in memory)]
    costs = [_cost(job, None), *(_cost(job, row) for row in memory)]
    read, config, scored = job.inputs.artifacts, job.config, job.inputs["tokens"].metrics
    tokens = scored["splits"][config.split]["tokens"]
    rows = report.table(
        names, weights.memories(), totals, counts, tokens, scored["vocabulary_size"]
    )
    rows = [row | cost for row, cost in zip(rows, costs, strict=True)]
    main = rows[1] if memory else rows[0]
    outside = plan.breakdown.outside
    counting = Counting(
        read, config.split, config.tune_split, config.reset, outside, plan.last_words
    )
    # the gate's probe counts all tokens, so it has no figure of last words
    shut = _gate_shut(shown, counts) if job.config.score == "all" else []
    sums = _unit_sums(job, plan)
    memories = [row["memories"] for row in rows]
    reads = {
        name: counting.reads(row, readings)
        for name, row, readings in zip(names, (None, *memory), memories, strict=True)
    }
    # the model without a neighbour reads its training text alone
    reads |= {row["row"]: Reads() for row in (*shut, {"row": TRAINING_TEXT})}
    controls = row_controls(counting, config.count_orders or (), reads, plan.unit_files)
    trigram = learned_text_figures(controls[TRAINING_TEXT].figures)
    last_words, learned = plan.breakdown.last_words, weights.learned()
    trained = job.inputs["model"].metrics
    unknown = report.without(names, totals, "unknown")
    # of the best K neighbours, by K; None if not counted
    accuracy = {k: matches / totals.tokens for k, matches in totals.matches.items()} or None
    varied = [curve for name in shown for curve in probes[name].curves(shown[name], first)]
    return {
        "split": job.config.split,
        "score": job.config.score,
        "tokens": counts.tokens,
        "words": counts.words,
        "unknown_rate": unknown and unknown["rate"],
        "unknown_tokens": unknown,
        "form": form(job.inputs["model"], scored, config.split),
        "document_ends": _document_ends(job),
        "end_tokens": report.without(names, totals, "ends"),
        **({} if job.config.exclude is None else {"exclude": job.config.exclude}),
        **({} if last_words is None else {"unknown_words": last_words.unknown}),
        **{name: value for name, value in main.items() if name != "row"},
        "method": job.inputs["model"].config["method"],
        "training": {name: trained[name] for name in ("passes", "still_falling")}
        if "passes" in trained
        else None,
        "valid_perplexity": _valid_perplexity(job),
        "trigram": trigram,
        "rows": _with_controls((*rows, *shut), names, controls, sums),
        "baseline": baseline_row(read["baseline"], read["model"]) if "baseline" in read else None,
        "change_intervals": _change_intervals(job, plan, names, sums),
        "adaptation": dynamic and learning_figures(dynamic, job.draft.record, config.tune_split),
        "conditions": condition_figures(
            [record["conditions"] for record in records if "conditions" in record],
            names,
            config.precision,
            [(part.start, part.stop) for part in plan.scoring.parts],
        ),
        "outside_repeated_paragraphs": report.outside_repeated_paragraphs(
            names, totals, plan.breakdown.repeated
        ),
        "outside_matches": report.outside_matches(
            names, totals, plan.breakdown.matched, counted_tokens(last_words, 0, tokens)
        ),
        "frequency_buckets": report.frequency_buckets(names, totals, plan.breakdown.frequencies),
        "retrieval_accuracy": accuracy,
        "retrieval_accuracy_by_chance": accuracy
        and _by_chance(job, plan, [int(k) for k in accuracy]),
        **(
            {}
            if learned is None
            else {"learned_weight": report.learned_figures(memory[0], learned, records, totals)}
        ),
        **(
            {"searched_share": sum(r["searches"] for r in records) / tokens}
            if "searches" in records[0]
            else {}
        ),
        "curves": [*report.curves(weights.curves(), totals), *varied],
        **{"gate": None, **shown},
        "grid": weights.grid(),
        "read": {role: artifact.reference for role, artifact in read.items()},
    }


DATASTORE_ROLES = ("index", "datastore")
"""Roles of the artifacts that a search of a datastore reads."""


def _cost(job: Job[EvaluateConfig], row: MemoryRow | None) -> dict[str, float | int | None]:
    """Searches a token and bytes on disk that a row needs besides the model; None: not known.

    `row`: None: the model alone.
    """
    read = job.inputs.artifacts
    if model_of(read["model"]).reads_neighbors:
        return {"searches_per_token": None, "bytes_beside_model": None}
    searches, sizes = 0.0, dict[str, int]()
    for source in row.sources if row else ():
        searches += sum(
            source.reading.searched for one in source.reading.source_settings if one.searches
        )
        for settings in source.reading.source_settings:
            if settings.reads_datastore:
                sizes |= {role: read[role].bytes for role in DATASTORE_ROLES}
            for memory in settings.inputs_read(read):
                sizes[memory.role] = memory.stored_bytes(read[memory.role])
    return {"searches_per_token": searches, "bytes_beside_model": sum(sizes.values())}


def _gate_shut(shown: Mapping[str, Any], counts: Counts) -> list[dict[str, Any]]:
    """The row of the same model without a neighbour, the control of a gate; empty without a gate."""
    for found in (shown.get("gate") or {}).get("by_neighbors", ()):
        if not found["neighbors"]:
            nll = inf if found["nll"] is None else found["nll"]
            row = {"row": SHUT, **figures(nll, counts), "diverged": found["nll"] is None}
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
    tokens, split = (
        job.inputs["tokens"].metrics,
        job.inputs["tokens"].metrics["splits"][job.config.split],
    )
    if job.config.score != "all" or tokens["eos_after"] != "document":
        return None
    return float(split["documents"] / split["tokens"])


def _valid_perplexity(job: Job[EvaluateConfig]) -> float | None:
    """Perplexity on `valid` at the end of training; None if it is not comparable with the first
    row.
    """
    model, config = job.inputs["model"], job.config
    method = model.config["method"]
    known = method in METHODS and not METHODS.settings(method).evaluation.trained_with_memory
    same = model.input("tokens").reference == job.inputs["tokens"].reference
    if not (known and same and config.score == "all" and config.split not in ("train", "valid")):
        return None
    return model.metrics.get("valid_perplexity")


def _by_chance(job: Job[EvaluateConfig], plan: Plan, at: Sequence[int]) -> dict[str, float]:
    """Retrieval accuracy of K rows of the datastore drawn at random, by K in `at`."""
    tokens, words = job.inputs["tokens"], plan.breakdown.last_words
    ids: Any = tokens.zarr("tokens.zarr")[f"{job.config.split}/ids"]
    counted = ids if words is None else ids[:][words.scored(0, ids.shape[0])]
    vocabulary = tokens.metrics["vocabulary_size"]
    stored = neighbor_values(job.inputs.artifacts)
    return chance_accuracy(type_counts(stored, vocabulary), type_counts(counted, vocabulary), at)


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
    found = []
    for row in rows:
        control = controls[row["row"]].figures
        if control is not None:
            everywhere, on_new_text = intervals.get(row["row"], (None, None))
            control |= {"interval": everywhere, "interval_on_new_text": on_new_text}
        found.append({**row, "control": control})
    return found


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


SETTINGS = ("segment_length", "batch_tokens", "accumulate", "label_smoothing", "clip_norm", "lora")
"""Settings of training, besides the sizes of the model, that change the perplexity of a model
alone.
"""
GROUPS = ("optimizer", "schedule")
"""Groups of settings that change it, too."""
FIGURES = ("parameters", "steps", "tokens")
OWN_MEMORY = frozenset((*NEIGHBOR_SETTINGS, "attention", "segment_length"))
"""Settings of a model that belong to its memory, or follow from training."""


def baseline_row(report: Artifact, model: Artifact) -> dict[str, Any]:
    """The first row of another report, shown above the rows of `model`, and how its model differs;
    JSON.
    """
    made, theirs = report.metrics, report.input("model")
    outside = made.get("outside_repeated_paragraphs")
    return {
        "report": report.reference,
        "model": theirs.reference,
        "method": made["method"],
        "row": made["rows"][0],
        "differs": list(_differences(model, theirs)) if not model.matches(theirs.record) else [],
        "outside_repeated_paragraphs": outside and {**outside, "rows": outside["rows"][:1]},
    }


def _differences(own: Artifact, theirs: Artifact) -> Iterator[str]:
    """Phrases for the differences of two models, except in memory: `backbone transformer-xl, not
    transformer`.
    """
    kinds = [model_of(model).model_dump(mode="json") for model in (own, theirs)]
    if kinds[0]["backbone"] != kinds[1]["backbone"]:
        yield _phrase("backbone", kinds[0]["backbone"], kinds[1]["backbone"])
    else:
        names = sorted((kinds[0].keys() & kinds[1].keys()) - OWN_MEMORY)
        yield from (
            _phrase(name, kinds[0][name], kinds[1][name])
            for name in names
            if kinds[0][name] != kinds[1][name]
        )
    for name in SETTINGS:
        yield from _differing(name, own.config, theirs.config)
    for group in GROUPS:
        first, second = (model.config.get(group) or {} for model in (own, theirs))
        yield from (
            f"{group} {phrase}" for name in first for phrase in _differing(name, first, second)
        )
    for name in FIGURES:
        yield from _differing(name, own.metrics, theirs.metrics)


def _differing(name: str, own: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    first, second = own.get(name), theirs.get(name)
    if None not in (first, second) and first != second:
        yield _phrase(name, first, second)


def _phrase(name: str, own: Any, theirs: Any) -> str:
    shown = [f"{value:,}" if isinstance(value, int) else str(value) for value in (own, theirs)]
    return f"{name.replace('_', ' ')} {shown[0]}, not {shown[1]}"
