"""Single tokens as a comparison tells them: where they stand, both probabilities, the text around them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stages.comparison.context import Contexts
from stages.comparison.scores import TokenScores


def token_rows(a: TokenScores, b: TokenScores, rows: np.ndarray, contexts: Contexts) -> Iterator[dict[str, Any]]:
    """LMScores tokens as JSON, with gates where there are any.

    Args:
        rows: numbers of scored tokens, int64 [n], in any order.
    """
    places = contexts.places
    at = rows if places.chosen is None else places.chosen[rows]
    log_p_a, log_p_b = (np.asarray(scores.log_p.vindex[rows], np.float64) for scores in (a, b))
    columns: dict[str, Any] = {
        "token": at,
        "document": places.documents(at),
        "position": places.positions(at),
        "log_p_a": log_p_a,
        "log_p_b": log_p_b,
        "difference": log_p_a - log_p_b,
    }
    for name, scores in (("gate_a", a), ("gate_b", b)):
        if scores.gate is not None:
            columns[name] = np.asarray(scores.gate.vindex[rows], np.float64)
    for number, context in enumerate(contexts.read(at)):
        yield {**{name: values[number].item() for name, values in columns.items()}, **context._asdict()}
