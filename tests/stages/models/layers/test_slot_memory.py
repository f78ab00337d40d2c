"""Slots: written as the equations say, kept, forgotten, never alike."""

import numpy as np
import pytest
import torch

from stages.models.backbones.stream_configs import MemformerConfig
from stages.models.layers.slot_memory import SlotWriter, biased_norm, slot_weights
from tests.oracles.memformer import written

D, K = 8, 3


def writer(slots=K, temperature=0.25, forgetting=0.1):
    torch.manual_seed(0)
    return SlotWriter(MemformerConfig(width=D, heads=2), slots, temperature, forgetting).double()


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("temperature", [0.01, 0.25, 3.0])
@pytest.mark.parametrize("rows", [1, 5])
def test_slots_are_written_as_the_equations_say(temperature, rows):
    net, memory, read = writer(temperature=temperature), drawn(2, K, D), drawn(2, rows, D)
    weights = {name: p.detach().numpy() for name, p in net.named_parameters()}
    with torch.no_grad():
        got = net(memory, read)
    for row in range(2):
        want = written(weights, memory[row].numpy(), read[row].numpy(), 2, temperature)
        np.testing.assert_allclose(got[row], want, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_small_steps():
    inputs = [drawn(1, 2, K, 4)[:, :, :, :3] * scale for scale in (0.5, 0.7, 0.9)]
    assert torch.autograd.gradcheck(slot_weights, [*(part.requires_grad_() for part in inputs), 0.5])
    assert torch.autograd.gradcheck(biased_norm, [drawn(2, K, D).requires_grad_(), drawn(K, D).requires_grad_()])


@pytest.mark.parametrize(("forgetting", "least", "most"), [(0.1, 0.6, 0.75), (1.15, 0.99, 1.0)])
def test_a_slot_that_is_given_nothing_moves_to_where_it_began(forgetting, least, most):
    """Eight timesteps after it stood at a right angle to its bias."""
    bias, slot = torch.zeros(1, D, dtype=torch.float64), torch.zeros(1, 1, D, dtype=torch.float64)
    bias[0, 0], slot[0, 0, 1] = forgetting, 1
    for _ in range(8):
        slot = biased_norm(slot, bias)
    assert least < float(slot[0, 0, 0]) <= most


def test_slots_begin_at_their_biases_no_two_alike_and_short():
    net = writer(16, forgetting=0.2)
    assert torch.allclose(net.bias.detach().norm(dim=1), torch.full((16,), 0.2, dtype=torch.float64))
    begun = net.begin(2).detach()
    torch.testing.assert_close(begun.norm(dim=2), torch.ones(2, 16, dtype=torch.float64))
    assert float((begun[0] @ begun[0].T - torch.eye(16)).max()) < 0.99
