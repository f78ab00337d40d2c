"""Adaptive k and λ: against numpy, its gradients, and what it learns where one number cannot be
right.
"""

import numpy as np
import pytest
import torch

from stages.memory.choice_network import (
    ChoiceNetwork,
    ChoicePositions,
    fit_choice,
    initial_logits,
    mix,
)
from tests.oracles import adaptive as oracle

N, F, C = 40, 5, 3


def random_positions(seed: int, n: int = N) -> ChoicePositions:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, F, generator=random, dtype=torch.float64)
    p = torch.rand(n, 1 + C, generator=random, dtype=torch.float64)
    p[::7, 1] = 0  # the nearest does not hold the target
    return ChoicePositions(inputs, p[:, 0].log(), p[:, 1:].log())


def random_network(seed: int) -> ChoiceNetwork:
    random = torch.Generator().manual_seed(seed)
    begun = ChoiceNetwork.constant(
        random_positions(seed).inputs, torch.randn(1 + C, generator=random).double(), seed
    )
    outer = torch.randn(begun.outer.shape, generator=random, dtype=torch.float64)
    return ChoiceNetwork.of_record(begun.record | {"outer": outer.tolist()})


@pytest.mark.parametrize("seed", range(3))
def test_weights_and_probabilities_are_those_of_numpy(seed: int) -> None:
    positions, network = random_positions(seed), random_network(seed)
    read = positions.read(network.outputs(positions.inputs)).exp()
    for place in range(N):
        shares = oracle.weights(network.record, positions.inputs[place].tolist())
        p = [float(positions.log_p[place].exp()), *positions.log_p_mem[place].exp().tolist()]
        assert float(read[place]) == pytest.approx(float(np.dot(shares, p)), rel=1e-12)


def test_gradients_are_those_of_differences() -> None:
    positions, network = random_positions(5, 6), random_network(5)

    def loss(inner: torch.Tensor, bias: torch.Tensor, outer: torch.Tensor) -> torch.Tensor:
        made = ChoiceNetwork(network.mean, network.spread, inner, bias, outer, network.offset)
        return -positions.read(made.outputs(positions.inputs)).mean()

    learned = [
        getattr(network, name).clone().requires_grad_() for name in ("inner", "bias", "outer")
    ]
    assert torch.autograd.gradcheck(loss, learned)


def test_dense_probabilities_sum_to_one() -> None:
    logits = torch.randn(4, 3, dtype=torch.float64)
    model, near, far = (torch.randn(4, 9, dtype=torch.float64).log_softmax(-1) for _ in range(3))
    near = near.masked_fill(torch.arange(9) > 3, -torch.inf).log_softmax(-1)
    torch.testing.assert_close(
        mix(model, torch.stack((near, far)), logits).exp().sum(-1), torch.ones(4).double()
    )


def test_a_network_begins_at_the_best_numbers_for_all() -> None:
    shares = initial_logits(0.4, best=1, numbers=3).softmax(-1)
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0).double())
    torch.testing.assert_close(shares[[0, 2]], torch.tensor([0.6, 0.4]).double(), atol=0.05, rtol=0)
    begun = ChoiceNetwork.constant(random_positions(0).inputs, initial_logits(0.4, 1, 3))
    torch.testing.assert_close(
        begun.outputs(random_positions(1).inputs).softmax(-1), shares.expand(N, -1)
    )


def test_contexts_that_differ_get_different_k_and_weights() -> None:
    """Where feature 0 is high one neighbour is right, where it is low eight are, and in between
    none.
    """
    n, random = 3000, torch.Generator().manual_seed(0)
    inputs = torch.randn(n, F, generator=random, dtype=torch.float64)
    kind = torch.bucketize(
        inputs[:, 0].contiguous(), torch.tensor([-0.5, 0.5]).double()
    )  # low, between, high
    right = torch.full((n, 3), 0.01, dtype=torch.float64)
    right[torch.arange(n), torch.tensor([2, 0, 1])[kind]] = 0.9
    positions = ChoicePositions(inputs, right[:, 0].log(), right[:, 1:].log())
    fitted = fit_choice(positions, initial_logits(0.5, 1, 2))
    found = fitted.outputs(inputs).argmax(-1)
    assert (found == torch.tensor([2, 0, 1])[kind]).double().mean() > 0.95
    assert (
        fit_choice(positions, initial_logits(0.5, 1, 2)).record == fitted.record
    )  # the same positions, the same network
