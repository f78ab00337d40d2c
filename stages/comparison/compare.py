"""Comparison of two reports: the difference, its confidence interval, and its parts by group of tokens.

Two streams of tasks are compared too: average, forgetting and transfer, and the score on each test.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import replacing
from stages.charts.training import FIGURES, named_figures
from stages.comparison.by_text import compare_text
from stages.comparison.by_token import compare_tokens, token_rows
from stages.comparison.settings import ComparisonSettings
from stages.errors import ArtifactError, UsageError
from stages.evaluation.config import BleuSettings
from stages.evaluation.fields import TRANSLATIONS, counting, held_against_counting
from stages.evaluation.figures.bleu import bleu_difference, require_sacrebleu
from stages.evaluation.figures.places import scored_places
from stages.evaluation.figures.token_scores import TokenScores, has_scores, open_scores
from stages.lineage.corpus import array_digests, tokenizer_digest
from stages.reporting import Progress, unheard
from stages.reports.tables import Cell, Group, Row, Table, score_cell, share
from stages.tasks.frequent_label import FREQUENT_LABEL, frequent_label_by_task
from stages.text.tokens import TokenSplit, open_split
from stages.web import marked


def compare_translations(a: Artifact, b: Artifact, settings: ComparisonSettings) -> dict[str, Any] | None:
    """BLEU of the compared rows of two reports, with a paired bootstrap over sentences; JSON.

    Returns: None if one has no translations, or if sentences, references or settings of BLEU differ.
    """
    if not all(TRANSLATIONS in report.manifest.files for report in (a, b)):
        return None
    configs = (a.config, b.config)
    how = [BleuSettings(lowercase=c.get("bleu_lowercase", False), tokenize=c.get("bleu_tokenize")) for c in configs]
    lines = [_lines(report) for report in (a, b)]
    pairs = [[(line["source"], line["reference"]) for line in some] for some in lines]
    if pairs[0] != pairs[1] or how[0] != how[1]:
        return None
    require_sacrebleu(how[0])
    rows = [list(some[0]["rows"])[: 1 if settings.reading == "model" else 2][-1] for some in lines]
    first, second = ([line["rows"][row]["text"] for line in some] for some, row in zip(lines, rows, strict=True))
    found = bleu_difference(first, second, [reference for _, reference in pairs[0]], how[0], settings.bootstrap)
    return {"rows": rows, **asdict(found), "difference": found.difference}


def _lines(report: Artifact) -> list[dict[str, Any]]:
    """The translated sentences of a report.

    Lines are read from the file: `str.splitlines` would also cut at characters inside a text, such as U+2028.
    """
    with report.file(TRANSLATIONS).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


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
    if _same_bytes(a.tokens, b.tokens, a.split):
        if len(a) != len(b):
            raise ArtifactError(
                f"{a.report.reference} scores {len(a):,} tokens of {a.split}, {b.report.reference} {len(b):,}: "
                "evaluate both on the same."
            )
        return True
    _require_same_text(a, b)
    return False


def _same_bytes(a: Artifact, b: Artifact, split: str) -> bool:
    """Whether a split has the same ids, documents and tokenizer in both; other splits may differ."""
    if a.record == b.record:
        return True
    return tokenizer_digest(a) == tokenizer_digest(b) and array_digests(a, split) == array_digests(b, split)


def _require_same_text(a: TokenScores, b: TokenScores) -> None:
    difference = _text_difference(a.tokens, b.tokens, a.split)
    if difference is not None:
        raise ArtifactError(
            f"{a.report.reference} is of {a.tokens.reference}, {b.report.reference} of {b.tokens.reference}: other "
            f"tokens, and not of the same text either, since {difference}. Evaluate both on the same text, cut into "
            "the same documents."
        )


def _text_difference(a: Artifact, b: Artifact, split: str) -> str | None:
    """A description of how the text of a split differs; None if it is the same, paragraph by paragraph.

    Text was counted and hashed before it was tokenized, so letter case and vocabulary play no part.
    """
    # Counts are in the manifest and cost nothing; hashes must be read, so they come second.
    for name in LENGTHS:
        of_a, of_b = (tokens.metrics["splits"][split][name] for tokens in (a, b))
        if of_a != of_b:
            return f"{split} has {of_a:,} {name} in the one and {of_b:,} in the other"
    opened_a, opened_b = (open_split(tokens.zarr("tokens.zarr"), split) for tokens in (a, b))
    other = _first_other(opened_a.paragraph_hashes, opened_b.paragraph_hashes)
    if other is not None:
        return f"paragraph {other} of {split} (counted from 0) reads differently"
    if not np.array_equal(_document_ends(opened_a), _document_ends(opened_b)):
        return f"{split} is cut into documents elsewhere"
    return None


def _first_other(a: Any, b: Any) -> int | None:
    """The first row in which two arrays of equal length differ; None if none does."""
    for start in range(0, int(a.shape[0]), PARAGRAPHS_AT_ONCE):
        stop = start + PARAGRAPHS_AT_ONCE
        other = np.flatnonzero(np.asarray(a[start:stop]) != np.asarray(b[start:stop]))
        if len(other):
            return start + int(other[0])
    return None


def _document_ends(split: TokenSplit) -> np.ndarray:
    """Number of the last paragraph of each document, int64 [D]."""
    return np.searchsorted(np.asarray(split.paragraph_ends[:]), np.asarray(split.doc_offsets[1:]))


def compare(a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard) -> dict[str, Any]:
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
    rows = {row["row"]: row for row in scores.report.metrics["rows"]}
    row = rows[scores.row]
    return {
        "reference": scores.report.reference,
        "model": scores.report.input("model").reference,
        "method": scores.report.metrics["method"],
        "row": scores.row,
        "tokens": scores.tokens.reference,
        "counting": counting(row),
        "against_counting": held_against_counting(scores.report.metrics, row),
        **{name: row[name] for name in ("nll", "perplexity", "bits_per_character", "word_perplexity")},
    }


def against_baseline(report: Artifact) -> dict[str, Any] | None:
    """Compare the first memory row of a report, token by token, with the model alone of its baseline.

    Returns: the result of `compare_tokens`, with the names of both `rows`; None if there is no baseline, or if one of
        the two reports has no token scores.
    """
    if "baseline" not in report.manifest.inputs:
        return None
    baseline = report.input("baseline")
    if not (has_scores(baseline) and has_scores(report)):
        return None
    scores = open_scores(baseline, "model"), open_scores(report, "final")
    return {"rows": [one.row for one in scores], **compare_tokens(*scores, ComparisonSettings(most=0, around=0))}


TOKENS_WRITTEN = 1 << 14


def check_token_table(option: str, path: Path) -> None:
    """Raises: UsageError if a file is there that `write_token_table` did not write; its first line is the only mark."""
    if path.exists() and not marked(path, TABLE_HEAD):
        raise UsageError(f"{option} {path} is there and was not written by memlm; name another file.")


def write_token_table(
    path: Path, a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard
) -> int:
    """Write a line for each token, in the order of the split; returns the number of lines.

    Columns: `token` (its number in the split), `document`, `position` (in the document), `log_p_a`, `log_p_b`,
    `difference` (log_p_a - log_p_b, so negative where B is better), the columns of probes, and
    `name` (of the document), `before`, `text`, `after`.

    Raises: UsageError if tokens are not the same; ArtifactError, as `compare`; OSError.
    """
    scores_a, scores_b = (open_scores(report, settings.reading) for report in (a, b))
    if not same_tokens(scores_a, scores_b):
        raise UsageError("Tokens of two tokenizers do not line up: there is no table of them (--csv).")
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


def require_same_tasks(a: Artifact, b: Artifact) -> None:
    """Raises: ArtifactError if two matrices have different tasks or measures."""
    tasks, measures = zip(
        *((sorted(m["tasks"]), (m.get("score"), m.get("candidates"), _by_task(m))) for m in (a.metrics, b.metrics)),
        strict=True,
    )
    if tasks[0] != tasks[1] or measures[0] != measures[1]:
        raise ArtifactError(
            f"{a.reference} and {b.reference} are of other tasks or measures: compare streams of the same."
        )


def compare_matrices(a: Artifact, b: Artifact) -> dict[str, Any]:
    """Figures of A, of B, and B - A, for readings of the same name, or else the first of each; JSON.

    `control` has the same figures for the most frequent label, if there is one.

    Raises: ArtifactError if their tasks or measures differ.
    """
    require_same_tasks(a, b)
    found_a, found_b = a.metrics, b.metrics
    rows_a, rows_b = ({row["row"]: row for row in found["rows"]} for found in (found_a, found_b))
    pairs = [(name, name) for name in rows_a if name in rows_b] or [(next(iter(rows_a)), next(iter(rows_b)))]
    rows = []
    for names in pairs:
        first, second = rows_a[names[0]], rows_b[names[1]]
        last = [dict(zip(f["tasks"], r["matrix"][-1], strict=True)) for f, r in ((found_a, first), (found_b, second))]
        figures = {name: _beside(first[name], second[name]) for name in FIGURES}
        tests = {task: _beside(last[0][task], last[1][task]) for task in found_a["tasks"]}
        rows.append({"rows": list(names), "figures": figures, "tests": tests})
    score = {"score": found_a["score"]} if "score" in found_a else {}
    return {"a": a.reference, "b": b.reference, **score, "rows": rows, **_control(a, b)}


def _control(a: Artifact, b: Artifact) -> dict[str, Any]:
    """The scores of the most frequent label on the tests of both, in the form of a row; empty if unknown."""
    first, second = frequent_label_by_task(a), frequent_label_by_task(b)
    if not (first and second):
        return {}
    means = [sum(scores.values()) / len(scores) for scores in (first, second)]
    tests = {task: _beside(score, second[task]) for task, score in first.items()}
    return {"control": {"rows": [FREQUENT_LABEL], "figures": {"average": _beside(*means)}, "tests": tests}}


def _by_task(found: Mapping[str, Any]) -> dict[str, str]:
    """Name of the score of each task, if answers are texts."""
    return dict(zip(found["tasks"], found["scores"], strict=True)) if "scores" in found else {}


def matrices_table(found: Mapping[str, Any]) -> Table:
    """A line for each figure and each test, after the last task."""
    groups, names = [], named_figures(found)
    for one in [*found["rows"], *([found["control"]] if "control" in found else [])]:
        lines = {names[name]: values for name, values in one["figures"].items()}
        lines |= {f"test {task}": values for task, values in one["tests"].items()}
        rows = [Row([Cell(name), *_cells(found, x, y, d)]) for name, (x, y, d) in lines.items() if d is not None]
        groups.append(Group(rows, Cell(" and ".join(dict.fromkeys(one["rows"])))))
    return Table(f"A: {found['a']}, B: {found['b']}", ("after the last task", "A", "B", "B - A"), groups)


def _cells(found: Mapping[str, Any], x: float | None, y: float | None, d: float) -> list[Cell]:
    cell = score_cell(found)
    return [cell(x), cell(y), Cell(f"{d:+.2f}", d) if found.get("score") else share(d, "+")]


def _beside(a: float | None, b: float | None) -> list[float | None]:
    return [a, b, None if a is None or b is None else b - a]
