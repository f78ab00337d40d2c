import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.retrieval.weights import learned
from stages.retrieval.weights.learned import CONTEXT, NEIGHBORS, neighbor_inputs
from tests.oracles import learned_weight as oracle

entries = st.lists(
    st.tuples(st.floats(-30, 30, width=32) | st.just(-math.inf), st.integers(0, 3)),
    min_size=1,
    max_size=70,
)


@given(entries)
@settings(deadline=None)
def test_neighbours_are_told_as_counted_one_by_one(pairs):
    scores, values = zip(*pairs, strict=True)
    held = [value if score > -math.inf else -1 for score, value in pairs]
    got = neighbor_inputs(torch.tensor([scores]), torch.tensor([held]))
    assert got.shape == (1, len(NEIGHBORS))
    np.testing.assert_allclose(got[0].numpy(), oracle.of_neighbors(scores, values), atol=2e-5)


def test_parts_of_many_positions_are_those_of_each(monkeypatch):
    random = torch.Generator().manual_seed(0)
    scores, values = (
        torch.randn(11, 20, generator=random),
        torch.randint(0, 5, (11, 20), generator=random),
    )
    alone = torch.cat(
        [neighbor_inputs(s[None], v[None]) for s, v in zip(scores, values, strict=True)]
    )
    monkeypatch.setattr(learned, "POSITIONS", 4)
    assert torch.equal(neighbor_inputs(scores, values), alone)


def test_names_stand_for_the_columns():
    assert len(oracle.of_neighbors([0.0], [1])) == len(NEIGHBORS)
    assert len(oracle.of_context([1.0], 0)) == len(CONTEXT)
