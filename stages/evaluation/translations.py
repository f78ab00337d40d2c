"""Translations of a split: shards, BLEU of rows and of candidates, and the sentences that memory
changed most.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardJob
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures.bleu import bleu_difference, corpus_scores, sentence_chrf
from stages.evaluation.figures.intervals import Bootstrap
from stages.evaluation.files import write_json
from stages.evaluation.passes import Part
from stages.evaluation.plan import Plan, translations
from stages.evaluation.range_reader import RangeReader
from stages.evaluation.row_weights import RowWeights
from stages.lineage.corpus import token_text
from stages.numbers import rate
from stages.reports.fields import CHANGED, TRANSLATIONS
from stages.retrieval.weights.policy import WeightPolicy
from stages.text.excerpt import TokenText
from stages.translation.pairs import PairTexts, pair_texts
from stages.translation.step_memory import Evidence, StepMemory
from stages.translation.translator import Translator, open_translator

MOST_CHANGED = 20
SAMPLES = 1000
"""Number of resamples for the interval of a difference in BLEU; each takes two computations of
BLEU.
"""


def open_row(
    job: ShardJob[EvaluateConfig], reader: RangeReader, policy: WeightPolicy | None, split: str
) -> Translator:
    """The translator of a split with the policy of a row; None: with the model alone."""
    config = job.config
    external = reader.external
    memory = None
    key = None
    if policy is not None:
        assert external is not None
        search = external.retrieval.steps(split)
        assert search is not None, "the settings were checked"
        memory = StepMemory(policy, search, getattr(torch, external.encoder.dtype))
        key = external.encoder.key
    device = reader.split_reader.device
    return open_translator(
        reader.model, job.inputs["tokens"], config.decoding, device, config.precision, memory, key
    )


def translate_shard(
    job: ShardJob[EvaluateConfig], translator: Translator, part: Part, output: ShardOutput
) -> None:
    """Translate the sentences of a shard, and write a line for each."""
    sources = sentences(job, job.config.split, "source", part.start, part.stop)
    memory = translator.memory
    searches_before = 0 if memory is None else memory.searches
    started = time.perf_counter()
    hypotheses = translator.translate(sources, part.start)
    seconds = time.perf_counter() - started
    searches = 0 if memory is None else memory.searches - searches_before

    with output.add(_file(part)).open("w", encoding="utf-8") as file:
        pairs = zip(sources, hypotheses, strict=True)
        for number, (source, hypothesis) in enumerate(pairs, part.start):
            line = {"text": translator.text_of(hypothesis.tokens), **hypothesis._asdict()}
            if memory is not None:
                line |= evidence_columns(translator.evidence(source, hypothesis, number))
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    num_cut = sum(hypothesis.cut for hypothesis in hypotheses)
    output.record |= {"seconds": seconds, "searches": searches, "cut": num_cut}


def evidence_columns(evidence: Evidence) -> dict[str, list[Any]]:
    """Evidence for the tokens of a translation, JSON: numbers with six digits, row numbers in full."""
    columns = {name: column.tolist() for name, column in evidence._asdict().items()}
    for name, values in columns.items():
        if name != "row":
            columns[name] = [float(f"{value:.6g}") for value in values]
    return columns


def add_translations(job: Job[EvaluateConfig], metrics: dict[str, Any], rows: int) -> None:
    """Write translations, if there are any, and add their figures to the report and its rows.

    Args:
        metrics: content of `metrics.json`.
        rows: number of rows that are translated.
    """
    names = [row["row"] for row in metrics["rows"]][:rows]
    translated = write_translations(job, names)
    if translated is None:
        return
    metrics["translation"], changed = translated
    write_json(job, CHANGED, {"sentences": changed})
    # The last row, of a spalm model without neighbours, is not translated.
    for row, figures in zip(metrics["rows"], metrics["translation"]["rows"], strict=False):
        row |= {name: figures[name] for name in ("bleu", "chrf")}


def write_translations(
    job: Job[EvaluateConfig], names: Sequence[str]
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Write all translations; returns their figures, and the sentences that the first memory
    changed most.

    Args:
        names: names of the rows, the model alone first.
    Returns: None if nothing is translated.
    """
    if not job.config.beam:
        return None
    text = token_text(job.inputs["tokens"])
    parts = translations(job, len(names))
    if job.inputs["tokens"].metrics["splits"][job.config.split]["unknown_rate"]:
        job.reporter.warning("References hold <unk>: BLEU is no BLEU of the text itself.")
    sources = _texts_of_split(job, text, "source")
    references = _texts_of_split(job, text, "target")
    rows: list[list[Any]] = [[] for _ in names]
    for part in parts:
        rows[part.row] += map(json.loads, (job.folder / _file(part)).read_bytes().splitlines())

    with job.draft.add(TRANSLATIONS).open("w", encoding="utf-8") as file:
        for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
            by_row = {name: row[number] for name, row in zip(names, rows, strict=True)}
            line = {"source": source, "reference": reference, "rows": by_row}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    figures = []
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        row_parts = [part for part in parts if part.row == number]
        figures.append({"row": name, **_figures(job, row_parts, row, rows[0], references)})
    changed = _changed(job, text, sources, references, rows) if len(rows) > 1 else []
    return {**dict(job.config.decoding), "sentences": len(sources), "rows": figures}, changed


def _texts_of_split(job: Job[EvaluateConfig], text: TokenText, side: str) -> list[str]:
    """The sentences of one side of the scored split, as texts."""
    split = job.config.split
    count = job.inputs["tokens"].metrics["splits"][split]["documents"]
    return [text.decoded(ids[:-1].tolist()) for ids in sentences(job, split, side, 0, count)]


def _figures(
    job: Job[EvaluateConfig],
    parts: Sequence[Part],
    row: Sequence[Mapping[str, Any]],
    plain: Sequence[Mapping[str, Any]],
    references: Sequence[str],
) -> dict[str, Any]:
    """Figures of one row; `change`: difference of its BLEU from the BLEU of the model alone."""
    texts = [line["text"] for line in row]
    records = [job.draft.record(part.key) for part in parts]
    seconds = sum(record["seconds"] for record in records)
    searches = sum(record["searches"] for record in records)
    change = None
    if row is not plain:
        plain_texts = [line["text"] for line in plain]
        difference = bleu_difference(
            plain_texts, texts, references, job.config.bleu, Bootstrap(SAMPLES)
        )
        change = {
            "difference": difference.difference,
            "interval": difference.interval,
            "p_value": difference.p_value,
        }
    return {
        **corpus_scores(texts, references, job.config.bleu)._asdict(),
        "change": change,
        "cut": sum(record["cut"] for record in records),
        "sentences_per_second": rate(len(texts), seconds),
        "searches_per_second": rate(searches, seconds) if searches else None,
    }


def _changed(
    job: Job[EvaluateConfig],
    text: TokenText,
    sources: Sequence[str],
    references: Sequence[str],
    rows: Sequence[Sequence[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Sentences whose chrF the first memory changed most, with the pairs that made their tokens
    likelier.
    """
    scores = []
    for row in rows[:2]:
        texts = [line["text"] for line in row]
        scores.append(sentence_chrf(texts, references, job.config.bleu))
    gains = np.subtract(scores[1], scores[0])
    order = np.argsort(-np.abs(gains), kind="stable")[:MOST_CHANGED]

    pairs = pair_texts(job.inputs.artifacts, text)
    changed = []
    for number in order.tolist():
        if not gains[number]:
            continue
        sentence = {
            "sentence": int(number),
            "source": sources[number],
            "reference": references[number],
            "plain": rows[0][number]["text"],
            "memory": rows[1][number]["text"],
            "chrf": [scores[0][number], scores[1][number]],
            "neighbors": _neighbors(rows[1][number], pairs, text),
        }
        changed.append(sentence)
    return changed


def _neighbors(line: Mapping[str, Any], pairs: PairTexts, text: TokenText) -> list[dict[str, Any]]:
    """The pairs that made tokens likelier, the largest gain first, each pair once."""
    tokens = [*line["tokens"], text.eos]  # a translation that was cut has no evidence for its end
    gains = np.exp(line["log_p"]) - np.exp(line["log_p_model"])
    neighbors: dict[int, dict[str, Any]] = {}
    for place in np.argsort(-gains, kind="stable").tolist():
        row = line["row"][place]
        if row >= 0 and gains[place] > 0:
            pair = pairs.of_row(row)
            neighbor = {"token": text.label(tokens[place]), "gain": float(gains[place]), **pair}
            neighbors.setdefault(pair["pair"], neighbor)
    return list(neighbors.values())[:3]


def sentences(
    job: ShardJob[EvaluateConfig], split: str, side: str, start: int, stop: int
) -> list[np.ndarray]:
    """Tokens of sentences [start, stop) of a split, each with `<eos>` at the end."""
    names = {"source": ("source_ids", "source_offsets"), "target": ("ids", "doc_offsets")}
    ids_name, offsets_name = names[side]
    arrays: Any = job.inputs["tokens"].zarr("tokens.zarr")
    borders = np.asarray(arrays[f"{split}/{offsets_name}"][start : stop + 1])
    first = int(borders[0])
    ids = np.asarray(arrays[f"{split}/{ids_name}"][first : int(borders[-1])]).astype(np.int64)
    return np.split(ids, (borders[1:-1] - first).tolist())


def _file(part: Part) -> str:
    return f"scratch/{part.key}.jsonl"


# Numbers of memory chosen by BLEU


def try_candidate(
    job: ShardJob[EvaluateConfig], reader: RangeReader, weights: RowWeights, part: Part
) -> dict[str, Any]:
    """The record of a shard: BLEU of the first sentences, translated with one candidate of a row's
    grid.
    """
    split = job.config.tune_split
    assert split is not None, "numbers are tuned"
    policy = weights.policies(weights.first)[part.row - 1]
    translator = open_row(job, reader, policy.at(policy.candidates[part.candidate]), split)
    sources = sentences(job, split, "source", part.start, part.stop)
    targets = sentences(job, split, "target", part.start, part.stop)

    text = token_text(job.inputs["tokens"])
    hypotheses = translator.translate(sources, part.start)
    translations = [translator.text_of(hypothesis.tokens) for hypothesis in hypotheses]
    references = [text.decoded(ids[:-1].tolist()) for ids in targets]
    return {"bleu": corpus_scores(translations, references, job.config.bleu).bleu}


def best_candidates(job: ShardJob[EvaluateConfig], plan: Plan) -> dict[int, int]:
    """The candidate with the highest BLEU, by row from 0; the first one wins a tie; empty if none
    was tried.
    """
    return {row: scores.index(max(scores)) for row, scores in _scores(job, plan).items()}


def bleu_figures(job: ShardJob[EvaluateConfig], plan: Plan, weights: RowWeights) -> dict[str, Any]:
    """The entry `bleu` of `tuning` in `metrics.json`: every candidate of every row; empty if none
    was tried.
    """
    if not plan.tries:
        return {}
    rows = []
    for row, scores in _scores(job, plan).items():
        policy = weights.policies()[row]
        points = policy.describe_points(policy.candidates)
        tried = [{**point, "bleu": score} for point, score in zip(points, scores, strict=True)]
        rows.append({"row": policy.row.name, "candidates": tried})
    return {"bleu": {"sentences": plan.tries[0].stop, "rows": rows}}


def _scores(job: ShardJob[EvaluateConfig], plan: Plan) -> Mapping[int, list[float]]:
    scores: dict[int, list[float]] = {}
    for part in plan.tries:
        scores.setdefault(part.row - 1, []).append(job.record(part.key)["bleu"])
    return scores
