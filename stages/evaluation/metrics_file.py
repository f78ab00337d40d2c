"""The content of a report's `metrics.json`, with the row of a baseline above its own rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Job
from stages.diagnostics.probe import Probe
from stages.evaluation.book_rows import book_figures
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.evaluation import Evaluation
from stages.evaluation.figures import report
from stages.evaluation.figures.breakdown import chance_accuracy, type_counts
from stages.evaluation.figures.conditions import condition_figures
from stages.evaluation.figures.places import counted_tokens
from stages.evaluation.learning import learning_figures
from stages.evaluation.plan import Plan
from stages.evaluation.row_figures import outside_repeated, row_figures
from stages.evaluation.row_weights import RowWeights
from stages.methods import METHODS
from stages.methods.config import TRAIN
from stages.retrieval.book_input import BOOK
from stages.retrieval.inputs import neighbor_values
from stages.retrieval.rows import MemoryRow
from stages.text.form import differences


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
    evaluation = Evaluation(job, plan, memory, weights, records, probes, shown)
    rows = evaluation.rows
    main_row = rows[1] if memory else rows[0]
    main_figures = {name: value for name, value in main_row.items() if name != "row"}
    return {
        **_text_figures(evaluation),
        **main_figures,
        **_model_figures(evaluation),
        **row_figures(evaluation),
        **_learning_figures(evaluation),
        **_book_figures(evaluation),
        **_breakdowns(evaluation),
        **_neighbor_figures(evaluation),
        **_settings_figures(evaluation),
        "read": {role: artifact.reference for role, artifact in evaluation.read.items()},
    }


def _text_figures(evaluation: Evaluation) -> dict[str, Any]:
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


def _model_figures(evaluation: Evaluation) -> dict[str, Any]:
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


def _learning_figures(evaluation: Evaluation) -> dict[str, Any]:
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


def _book_figures(evaluation: Evaluation) -> dict[str, Any]:
    """Figures of an open book; empty without one."""
    settings = evaluation.config.open_book
    if settings is None:
        return {}
    book = evaluation.read[BOOK.role].reference
    figures = book_figures(settings.model_dump(), evaluation.records, book, evaluation.split_tokens)
    return {"open_book": figures}


def _breakdowns(evaluation: Evaluation) -> dict[str, Any]:
    """Figures of parts of the text: outside of repeated text, and by frequency."""
    names = evaluation.all_names
    totals = evaluation.totals
    breakdown = evaluation.plan.breakdown
    counted = counted_tokens(breakdown.last_words, 0, evaluation.split_tokens)
    return {
        "outside_repeated_paragraphs": outside_repeated(evaluation),
        "outside_matches": report.outside_matches(names, totals, breakdown.matched, counted),
        "frequency_buckets": report.frequency_buckets(names, totals, breakdown.frequencies),
    }


def _neighbor_figures(evaluation: Evaluation) -> dict[str, Any]:
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


def _settings_figures(evaluation: Evaluation) -> dict[str, Any]:
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
