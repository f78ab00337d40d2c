"""Single tokens as a comparison tells them, and a table of every scored token of two reports as CSV."""

import csv
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import replacing
from stages.comparison.comparability import same_tokens
from stages.comparison.settings import ComparisonSettings
from stages.errors import UsageError
from stages.evaluation.figures.places import Places, scored_places
from stages.evaluation.figures.token_scores import TokenScores, open_scores
from stages.lineage.corpus import token_text
from stages.reporting import Progress, unheard
from stages.text.excerpt import Excerpt, SplitText, half_a_line
from stages.text.names import DocumentNames


def token_rows(
    a: TokenScores, b: TokenScores, rows: np.ndarray, places: Places, around: int | None
) -> Iterator[dict[str, Any]]:
    """Scored tokens as JSON, with what probes say of them (`NAME_a`, `NAME_b`).

    Args:
        rows: numbers of scored tokens, int64 [n], in any order.
        around: tokens of context before and after; None: as many as fill a line.
    """
    at = rows if places.chosen is None else places.chosen[rows]
    log_p_a, log_p_b = (np.asarray(scores.log_p.take(rows), np.float64) for scores in (a, b))
    columns: dict[str, Any] = {
        "token": at,
        "document": places.documents(at),
        "position": places.positions(at),
        "log_p_a": log_p_a,
        "log_p_b": log_p_b,
        "difference": log_p_a - log_p_b,
    }
    for side, scores in (("a", a), ("b", b)):
        for name, values in scores.probed.items():
            columns[f"{name}_{side}"] = np.asarray(values.take(rows), np.float64)
    for number, excerpt in enumerate(_excerpts(a, places, at, around)):
        texts = {"name": excerpt.name, "before": excerpt.before, "text": excerpt.token, "after": excerpt.after}
        yield {**{name: values[number].item() for name, values in columns.items()}, **texts}


def _excerpts(scores: TokenScores, places: Places, at: np.ndarray, around: int | None) -> list[Excerpt]:
    tokens, split = scores.tokens, places.split
    names = DocumentNames.read(tokens.path, scores.split)
    text = SplitText(scores.split, split.ids, split.doc_offsets, token_text(tokens), names)
    length = half_a_line(tokens.metrics["tokenizer"]) if around is None else around
    return text.excerpts(at, length, length)


TOKENS_AT_ONCE = 1 << 14


def write_token_table(
    path: Path, a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard
) -> int:
    """Write a line a token, in the order of the split; returns how many.

    Columns: `token` (its number in the split), `document`, `position` (in the document), `log_p_a`, `log_p_b`,
    `difference` (log_p_a - log_p_b, so negative where B is better), what probes tell (`gate_a`, `gate_b`), and
    `name` (of the document), `before`, `text`, `after`.

    Raises: UsageError if tokens are not the same; as `stages.comparison.compare.compare`; OSError.
    """
    scores_a, scores_b = (open_scores(report, settings.reading) for report in (a, b))
    if not same_tokens(scores_a, scores_b):
        raise UsageError("Tokens of two tokenizers do not line up: there is no table of them (--csv).")
    places = scored_places(scores_a.tokens, scores_a.split, scores_a.counted)

    def lines() -> Iterator[dict[str, Any]]:
        for start in range(0, len(places), TOKENS_AT_ONCE):
            rows = np.arange(start, min(start + TOKENS_AT_ONCE, len(places)))
            yield from token_rows(scores_a, scores_b, rows, places, settings.around)
            progress(start + len(rows), len(places), "tokens written")

    with replacing(path) as file:
        text = TextIOWrapper(file, "utf-8", newline="")
        written = lines()
        first = next(written)
        writer = csv.DictWriter(text, list(first))
        writer.writeheader()
        writer.writerows(chain([first], written))
        text.detach()
    return len(places)
