"""Which positions of a batch see which."""

import torch
from hypothesis import strategies as st

from stages.memory.in_batch.visible import Visible
from tests.oracles.in_batch import reads


def table(visible, keys):
    return [[reads(visible, i, j) for j in range(keys)] for i in range(len(visible))]


@st.composite
def visibles(draw, most=12):
    """Any bounds, also those of nothing and holes beside what is read; and the number of keys."""
    keys = draw(st.integers(1, most))
    n = draw(st.integers(1, most))
    place = st.integers(0, keys)
    start, stop, hole = (
        torch.tensor(draw(st.lists(place, min_size=n, max_size=n))) for _ in range(3)
    )
    length = torch.tensor(draw(st.lists(place, min_size=n, max_size=n)))
    return Visible(start, stop, hole, (hole + length).clamp(max=keys)), keys
