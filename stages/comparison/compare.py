"""Comparison of two reports: the difference, its confidence interval, and its parts by group of
tokens.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import replacing
from stages.comparison.by_text import compare_text
from stages.comparison.by_token import compare_tokens, token_rows
from stages.comparison.settings import ComparisonSettings
from stages.errors import ArtifactError, UsageError
from stages.evaluation.config import BleuSettings
from stages.evaluation.figures.bleu import bleu_difference, require_sacrebleu
from stages.evaluation.figures.places import scored_places
from stages.evaluation.figures.token_scores import TokenScores, has_scores, open_scores
from stages.lineage.corpus import array_digests, tokenizer_digest
from stages.reporting import Progress, unheard
from stages.reports.counting import against_counting
from stages.reports.fields import TRANSLATIONS, counting
from stages.reports.measures import MEASURES
from stages.text.tokens import TokenSplit, open_split


def compare_translations(
    a: Artifact, b: Artifact, settings: ComparisonSettings
) -> dict[str, Any] | None:
    """BLEU of the compared rows of two reports, with a paired bootstrap over sentences; JSON.

    Returns: None if one has no translations, or if sentences, references or settings of BLEU
    differ.
    """
    if TRANSLATIONS not in a.manifest.files or TRANSLATIONS not in b.manifest.files:
        return None
    bleu = _bleu_settings(a)
    lines_a = _translations(a)
    lines_b = _translations(b)
    if bleu != _bleu_settings(b) or _pairs(lines_a) != _pairs(lines_b):
        return None
    require_sacrebleu(bleu)

    row_a = _compared_row(lines_a, settings.reading)
    row_b = _compared_row(lines_b, settings.reading)
    texts_a = [line["rows"][row_a]["text"] for line in lines_a]
    texts_b = [line["rows"][row_b]["text"] for line in lines_b]
    references = [line["reference"] for line in lines_a]
    difference = bleu_difference(texts_a, texts_b, references, bleu, settings.bootstrap)
    return {
        "rows": [row_a, row_b],
        **asdict(difference),
        "difference": difference.difference,
    }


def _bleu_settings(report: Artifact) -> BleuSettings:
    return BleuSettings(
        lowercase=report.config.get("bleu_lowercase", False),
        tokenize=report.config.get("bleu_tokenize"),
    )


def _translations(report: Artifact) -> list[dict[str, Any]]:
    """One record for each sentence."""
    # Lines of the file: `str.splitlines` would also cut at characters inside a text, such as
    # U+2028.
    with report.file(TRANSLATIONS).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _pairs(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Source and reference of each sentence."""
    return [(line["source"], line["reference"]) for line in lines]


def _compared_row(lines: Sequence[Mapping[str, Any]], reading: str) -> str:
    """The model's own row, or the first with a memory; the only one, if there is no other."""
    rows = list(lines[0]["rows"])
    if reading == "model":
        return rows[0]
    return rows[min(1, len(rows) - 1)]


PARAGRAPHS_AT_ONCE = 1 << 20
TABLE_HEAD = "token,document,position,log_p_a,log_p_b,difference"
"""First columns of a table of tokens."""
LENGTHS = ("documents", "paragraphs", "characters", "bytes", "words")


def same_tokens(a: TokenScores, b: TokenScores) -> bool:
    """Whether both score the same tokens; False: the same text, in tokens of another tokenizer.

    Raises: ArtifactError, naming both reports, if splits, scored tokens or texts differ.
    """
    for name, of_a, of_b in (("splits", a.split, b.split), ("scored tokens", a.counted, b.counted)):
        if of_a != of_b:
            raise ArtifactError(
                f"{a.report.reference} and {b.report.reference} cannot be compared: their {name} are {of_a!r} and "
                f"{of_b!r}. Evaluate both on the same."
            )
    # The ids, documents and tokenizer of the split count; other splits may differ.
    if a.tokens.record == b.tokens.record or (
        tokenizer_digest(a.tokens) == tokenizer_digest(b.tokens)
        and array_digests(a.tokens, a.split) == array_digests(b.tokens, a.split)
    ):
        if len(a) != len(b):
            raise ArtifactError(
                f"{a.report.reference} scores {len(a):,} tokens of {a.split}, {b.report.reference} {len(b):,}: "
                "evaluate both on the same."
            )
        return True
    difference = _text_difference(a.tokens, b.tokens, a.split)
    if difference is not None:
        raise ArtifactError(
            f"{a.report.reference} is of {a.tokens.reference}, {b.report.reference} of {b.tokens.reference}: other "
            f"tokens, and not of the same text either, since {difference}. Evaluate both on the same text, cut into "
            "the same documents."
        )
    return False


def _text_difference(a: Artifact, b: Artifact, split: str) -> str | None:
    """A description of how the text of a split differs; None if it is the same, paragraph by
    paragraph.

    Text was counted and hashed before it was tokenized, so letter case and vocabulary play no part.
    """
    # Counts are in the manifest and cost nothing; hashes must be read, so they come second.
    metrics_a = a.metrics["splits"][split]
    metrics_b = b.metrics["splits"][split]
    for name in LENGTHS:
        if metrics_a[name] != metrics_b[name]:
            return f"{split} has {metrics_a[name]:,} {name} in the one and {metrics_b[name]:,} in the other"

    split_a = open_split(a.zarr("tokens.zarr"), split)
    split_b = open_split(b.zarr("tokens.zarr"), split)
    num_paragraphs = int(split_a.paragraph_hashes.shape[0])
    for start in range(0, num_paragraphs, PARAGRAPHS_AT_ONCE):
        rows = slice(start, start + PARAGRAPHS_AT_ONCE)
        hashes_a = np.asarray(split_a.paragraph_hashes[rows])
        hashes_b = np.asarray(split_b.paragraph_hashes[rows])
        differing = np.flatnonzero(hashes_a != hashes_b)
        if len(differing):
            number = start + int(differing[0])
            return f"paragraph {number} of {split} (counted from 0) reads differently"
    if not np.array_equal(_document_ends(split_a), _document_ends(split_b)):
        return f"{split} is cut into documents elsewhere"
    return None


def _document_ends(split: TokenSplit) -> np.ndarray:
    """Number of the last paragraph of each document, int64 [D]."""
    return np.searchsorted(np.asarray(split.paragraph_ends[:]), np.asarray(split.doc_offsets[1:]))


def compare(
    a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard
) -> dict[str, Any]:
    """Compare report B with report A: token by token, or by text if only their tokenizers differ.

    A difference is B minus A in negative log-likelihood (nats): negative if B is better.

    Args:
        a, b: reports with token scores.
        settings: the row to compare, the units, and the draws of the bootstrap.
        progress: called with the number of tokens read, and of samples drawn.
    Returns: JSON; its fields are in `stages/comparison/settings.py`.
    Raises: ArtifactError if one has no token scores, or if they score different texts.
    """
    scores_a, scores_b = (open_scores(report, settings.reading) for report in (a, b))
    compare_scores = compare_tokens if same_tokens(scores_a, scores_b) else compare_text
    translated = compare_translations(a, b, settings)
    return {
        **({} if translated is None else {"bleu": translated}),
        "a": _report_facts(scores_a),
        "b": _report_facts(scores_b),
        "reading": settings.reading,
        "split": scores_a.split,
        "score": scores_a.counted,
        **compare_scores(scores_a, scores_b, settings, progress),
    }


def _report_facts(scores: TokenScores) -> dict[str, Any]:
    report = scores.report
    rows = {row["row"]: row for row in report.metrics["rows"]}
    row = rows[scores.row]
    facts = {
        "reference": report.reference,
        "model": report.input("model").reference,
        "method": report.metrics["method"],
        "row": scores.row,
        "tokens": scores.tokens.reference,
        "counting": counting(row),
        "against_counting": against_counting(report.metrics, row)._asdict(),
    }
    for name in ("nll", "perplexity", "bits_per_character", "word_perplexity"):
        facts[name] = row[name]
    for measure in MEASURES.computed():
        facts[measure.name] = row.get(measure.name)
    return facts


def against_baseline(report: Artifact) -> dict[str, Any] | None:
    """Compare the first memory row of a report, token by token, with the model alone of its
    baseline.

    Returns: the result of `compare_tokens`, with the names of both `rows`; None if there is no
        baseline, or if one of the two reports has no token scores.
    """
    if "baseline" not in report.manifest.inputs:
        return None
    baseline = report.input("baseline")
    if not (has_scores(baseline) and has_scores(report)):
        return None
    scores = open_scores(baseline, "model"), open_scores(report, "final")
    return {
        "rows": [score.row for score in scores],
        **compare_tokens(*scores, ComparisonSettings(most=0, around=0)),
    }


TOKENS_WRITTEN = 1 << 14


def write_token_table(
    path: Path, a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard
) -> int:
    """Write a line for each token, in the order of the split; returns the number of lines.

    Columns: `token` (its number in the split), `document`, `position` (in the document), `log_p_a`,
    `log_p_b`, `difference` (log_p_a - log_p_b, so negative where B is better), the columns of
    probes, and `name` (of the document), `before`, `text`, `after`.

    Raises: UsageError if tokens are not the same; ArtifactError, as `compare`; OSError.
    """
    scores_a, scores_b = (open_scores(report, settings.reading) for report in (a, b))
    if not same_tokens(scores_a, scores_b):
        raise UsageError(
            "Tokens of two tokenizers do not line up: there is no table of them (--csv)."
        )
    places = scored_places(scores_a.tokens, scores_a.split, scores_a.counted)

    def lines() -> Iterator[dict[str, Any]]:
        for start in range(0, len(places), TOKENS_WRITTEN):
            rows = np.arange(start, min(start + TOKENS_WRITTEN, len(places)))
            yield from token_rows(scores_a, scores_b, rows, places, settings.around)
            progress(start + len(rows), len(places), "tokens written")

    with replacing(path) as file:
        text = TextIOWrapper(file, "utf-8", newline="")
        written = lines()
        first = next(written)
        writer = csv.DictWriter(text, list(first))
        writer.writeheader()
        writer.writerows(chain([first], written))
        # `replacing` closes the file itself, after it is flushed to disk.
        text.detach()
    return len(places)
