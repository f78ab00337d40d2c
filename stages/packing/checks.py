"""Check of the order of packed segments."""

import numpy as np

from stages.artifacts.schema import between


def wrong_permutation(values: np.ndarray, start: int, rows: int) -> str | None:
    """Check for a permutation of 0 … rows - 1; None: it is one."""
    wrong = between(0, rows, "numbers")(values, start, rows)
    if wrong is None and len(np.unique(values)) != len(values):
        return "a number stands there twice"
    return wrong
