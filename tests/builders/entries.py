"""Made memories, and their sums over cells of a table."""

import math

import torch
from hypothesis import strategies as st

from stages.memory.entries import (
    Entries,
)

VOCABULARY = 4


def cells_of(rows, best_first=True):
    """Entries from lists of (score, value); shorter rows are filled with missing entries."""
    k = max(1, *map(len, rows))
    scores = torch.full((len(rows), k), -torch.inf)
    values = torch.full((len(rows), k), -1)
    for i, row in enumerate(rows):
        for j, (score, value) in enumerate(sorted(row, reverse=True) if best_first else row):
            scores[i, j], values[i, j] = score, value
    return Entries(scores, values)


entry = st.tuples(st.integers(-30, 30).map(lambda n: n / 4), st.integers(0, VOCABULARY - 1))


memories = st.lists(st.lists(entry, max_size=9), min_size=1, max_size=5)


def log_or_absent(mass):
    return math.log(mass) if mass else -math.inf
