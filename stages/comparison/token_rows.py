"""Single tokens as a comparison tells them: where they stand, both probabilities, the text around them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stages.evaluation.figures.places import Places
from stages.evaluation.figures.token_scores import TokenScores
from stages.lineage.corpus import token_text
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
