"""Runs of numbers, made while other threads run: `np.repeat` and Python's loops would hold them up."""

import numpy as np
from jaxtyping import Int64, Integer


def runs(
    starts: Integer[np.ndarray, " m"], lengths: Integer[np.ndarray, " m"], step: int = 1
) -> Int64[np.ndarray, " total"]:
    """As many numbers as each length says, from its start on, one run after the other; step 0: the start itself."""
    some = lengths > 0
    starts, lengths = starts[some], lengths[some]
    ends = np.cumsum(lengths)
    out = np.full(int(ends[-1]) if len(ends) else 0, step, np.int64)
    if len(ends):
        out[0] = starts[0]
        out[ends[:-1]] = np.diff(starts) - step * (lengths[:-1] - 1)
    return np.cumsum(out)  # in place it would hold other threads up
