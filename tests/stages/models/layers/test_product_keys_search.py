"""The best slots of two halves are those of all pairs."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models.layers.product_keys import best_slots
from tests.oracles.product_keys import all_scores, read


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.data(), st.integers(0, 2**31), st.booleans())
def test_they_are_those_of_all_pairs(n, data, seed, ties):
    k = data.draw(st.integers(1, n))
    random = np.random.default_rng(seed)
    query, keys = random.standard_normal(6), random.standard_normal((2, n, 3))
    if ties:
        query, keys = query.round(), keys.round()
    wanted = all_scores(query, *keys)
    first, second = (torch.from_numpy(half @ part) for half, part in zip(keys, (query[:3], query[3:]), strict=True))
    scores, slots = best_slots(first[None], second[None], k)
    best, _, _ = read(wanted, np.eye(n * n), k)
    np.testing.assert_allclose(scores[0], wanted[best], atol=1e-12)  # of slots that are level any may be taken
    np.testing.assert_allclose(wanted[slots[0]], scores[0], atol=1e-12)
    assert len(set(slots[0].tolist())) == k


def test_gradients_go_to_the_halves_of_what_was_found():
    first = torch.tensor([[1.0, 5.0, 0.0]], requires_grad=True)
    second = torch.tensor([[0.0, 2.0, 3.0]], requires_grad=True)
    scores, slots = best_slots(first, second, 2)
    assert slots.tolist() == [[1 * 3 + 2, 1 * 3 + 1]]
    scores.sum().backward()
    assert (first.grad.tolist(), second.grad.tolist()) == ([[0, 2, 0]], [[0, 1, 1]])
