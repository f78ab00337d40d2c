"""The gate against loops in float64: values, gradients, missing and repeated neighbours."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models import gate as kernel
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import parse_model
from stages.models.gate import Gate, attend
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import make_vocabulary
from tests.oracles import spalm

V, D = 30, 16
KINDS = {
    "full": {},
    "full untied": {"tied": False},
    "adaptive": {"cutoffs": (6, 15), "factor": 2},
    "adaptive untied": {"cutoffs": (6, 15), "factor": 2, "tied": False},
}
GATES = ("vector", "scalar")
SCALES = {"scaled": D**0.5, "raw": 1.0}


def vocabulary(kind):
    torch.manual_seed(0)
    made = make_vocabulary(
        TransformerConfig(vocab_size=V, width=D, heads=2, **KINDS[kind])
    ).double()
    if KINDS[kind].get("cutoffs"):
        made.sort_by(torch.arange(V) % 7)
    return made


def gate(kind, values="scaled", seed=1):
    made = Gate(D, kind, values).double()
    torch.nn.init.normal_(made.weight, generator=torch.Generator().manual_seed(seed))
    return made


def sample(n, k, seed=0, missing=0.3):
    """Hidden states and neighbours: some repeated, some missing, the first position without any."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, D, dtype=torch.float64, generator=generator)
    neighbors = torch.randint(V, (n, k), generator=generator)
    neighbors[torch.rand(n, k, generator=generator) < missing] = -1
    neighbors[:1] = -1
    neighbors[1:2] = 5
    return hidden.requires_grad_(), neighbors


@pytest.fixture(params=KINDS)
def words(request):
    return vocabulary(request.param)


@pytest.fixture(params=GATES)
def kind(request):
    return request.param


def embeddings(words):
    return words.embed(torch.arange(V)).detach().numpy()


def gradients(of, wanted):
    """Of a loss that weighs every element differently."""
    upstream = torch.randn(of.shape, dtype=of.dtype, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad(of, wanted, upstream, materialize_grads=True)


@pytest.mark.parametrize("values", SCALES)
@pytest.mark.parametrize("k", [1, 2, 4, 16])
def test_values_are_those_of_the_loops(words, kind, k, values):
    hidden, neighbors = sample(9, k)
    made = gate(kind, values)
    got = made(hidden, neighbors, words)
    arrays = hidden.detach().numpy(), neighbors.numpy()
    weight = made.weight.detach().numpy()
    torch.testing.assert_close(got.gate.detach(), torch.from_numpy(spalm.gates(*arrays, weight)))
    want = spalm.gated(*arrays, embeddings(words), weight, SCALES[values])
    torch.testing.assert_close(got.hidden.detach(), torch.from_numpy(want))


def test_without_the_gate_memory_is_a_mean_weighted_by_attention(words):
    hidden, neighbors = sample(9, 4)
    types, rows = torch.unique(neighbors.clamp(min=0), return_inverse=True)
    got = attend(hidden, words.embed(types), rows, neighbors >= 0)
    want = spalm.aggregated(hidden.detach().numpy(), neighbors.numpy(), embeddings(words))
    torch.testing.assert_close(got.detach(), torch.from_numpy(want))


@pytest.mark.parametrize("values", SCALES)
def test_gradients_are_those_of_plain_autograd(words, kind, values):
    hidden, neighbors = sample(9, 4)
    made = gate(kind, values)
    wanted = [hidden, made.weight, *words.parameters()]
    slow = spalm.differentiable(hidden, neighbors, words.embed, made.weight, SCALES[values])
    torch.testing.assert_close(
        gradients(made(hidden, neighbors, words).hidden, wanted), gradients(slow, wanted)
    )


def test_gradients_of_the_loss_are_those_of_plain_autograd(words, kind):
    """Embeddings are read by the gate and, where tied, by the softmax."""
    hidden, neighbors = sample(9, 4)
    made = gate(kind)
    targets = torch.randint(V, (9,), generator=torch.Generator().manual_seed(3))
    wanted = [hidden, made.weight, *words.parameters()]
    slow = spalm.differentiable(hidden, neighbors, words.embed, made.weight, made.scale)
    want = torch.autograd.grad(F.nll_loss(words.log_probs(slow), targets), wanted)
    got = torch.autograd.grad(words.loss(made(hidden, neighbors, words).hidden, targets), wanted)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("block", [1, 40, 1 << 18])
def test_gradients_are_finite_differences_whatever_the_blocks(monkeypatch, block):
    monkeypatch.setitem(kernel.BLOCK_ELEMENTS, "cpu", block)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 3, dtype=torch.float64, generator=generator).requires_grad_()
    rows_of = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    rows = torch.randint(4, (5, 4), generator=generator)
    present = torch.rand(5, 4, generator=generator) < 0.6
    present[2] = False
    assert torch.autograd.gradcheck(attend, (hidden, rows_of, rows, present))


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    n=st.integers(1, 6),
    k=st.integers(1, 16),
    of=st.sampled_from(list(KINDS)),
    kind=st.sampled_from(GATES),
    values=st.sampled_from(list(SCALES)),
)
def test_any_shape_with_any_neighbours_missing(data, n, k, of, kind, values):
    tokens = st.lists(
        st.lists(st.integers(-1, V - 1), min_size=k, max_size=k), min_size=n, max_size=n
    )
    neighbors = torch.tensor(data.draw(tokens))
    hidden, words, made = sample(n, k)[0], vocabulary(of), gate(kind, values)
    fast, slow = (
        made(hidden, neighbors, words).hidden,
        spalm.differentiable(hidden, neighbors, words.embed, made.weight, SCALES[values]),
    )
    torch.testing.assert_close(fast, slow)
    wanted = [hidden, made.weight, *words.parameters()]
    torch.testing.assert_close(gradients(fast, wanted), gradients(slow, wanted))


def test_positions_without_neighbours_keep_their_hidden_state_to_the_bit(words, kind):
    hidden, neighbors = sample(9, 4, missing=1.0)
    made = gate(kind)
    neighbors[4, 2] = 7
    got = made(hidden, neighbors, words)
    lone = torch.arange(9) != 4
    lone[1] = False
    assert torch.equal(got.hidden[lone], hidden[lone])
    assert torch.equal(got.gate[lone], torch.ones_like(got.gate[lone]))
    grad, by_weight = torch.autograd.grad(got.hidden[lone].sum(), [hidden, made.weight])
    assert torch.equal(grad[lone], torch.ones_like(grad[lone]))
    assert not by_weight.any()


def test_an_untrained_gate_takes_half_of_each():
    words = vocabulary("adaptive")
    hidden, neighbors = sample(9, 1, missing=0.0)
    got = Gate(D, "vector", "scaled").double()(hidden, neighbors, words)
    memory = D**0.5 * words.embed(neighbors[:, 0].clamp(min=0))
    torch.testing.assert_close(got.hidden[1:], (hidden + memory)[1:] / 2)


def test_large_scores_stay_finite():
    words = vocabulary("full")
    hidden, neighbors = sample(9, 4)
    made = gate("vector").float()
    hidden = (hidden.detach() * 1e4).float().requires_grad_()
    got = made(hidden, neighbors, words.float()).hidden
    assert got.isfinite().all()
    assert all(
        grad.isfinite().all() for grad in gradients(got, [hidden, made.weight, *words.parameters()])
    )


def test_embeddings_that_enter_the_gate_are_not_dropped_out():
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=V,
        width=D,
        heads=2,
        max_positions=4,
        gate="vector",
        dropout=0.9,
        tail_dropout=0.9,
        **KINDS["adaptive"],
    )
    model = LanguageModel(config).train()
    hidden, neighbors = sample(9, 4)
    first = model.gated(hidden.float(), neighbors).hidden
    assert torch.equal(first, model.gated(hidden.float(), neighbors).hidden)
    assert torch.equal(first, model.eval().gated(hidden.float(), neighbors).hidden)


def test_the_gate_computes_in_float32_under_autocast():
    torch.manual_seed(0)
    model = LanguageModel(
        TransformerConfig(vocab_size=V, width=D, heads=2, max_positions=4, gate="vector")
    )
    hidden, neighbors = sample(9, 4)
    rounded = hidden.detach().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = model.gated(rounded, neighbors)
    assert got.hidden.dtype == got.gate.dtype == torch.float32
    want = spalm.gated(
        rounded.double().numpy(), neighbors.numpy(), embeddings(model.vocabulary), np.zeros((D, D))
    )
    torch.testing.assert_close(
        got.hidden.detach().double(), torch.from_numpy(want), rtol=1e-5, atol=1e-5
    )


def test_memory_does_not_grow_with_the_neighbours(monkeypatch):
    """What the backward pass keeps: two matrices [N, d], the embeddings, and [N, k]."""
    hidden, neighbors = sample(64, 16)
    words, kept = vocabulary("full"), []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t
    ):
        gate("vector")(hidden, neighbors, words)
    assert max(kept) <= max(hidden.numel(), words.embedding.numel(), neighbors.numel())


def test_a_stored_model_that_does_not_say_has_raw_values():
    stored = {
        "backbone": "transformer",
        "vocab_size": V,
        "width": D,
        "heads": 2,
        "max_positions": 4,
        "gate": "vector",
    }
    config = parse_model(stored)
    assert LanguageModel(config).gate.scale == 1
    scaled = parse_model(stored | {"gate_values": "scaled"})
    assert LanguageModel(scaled).gate.scale == D**0.5
    assert parse_model(scaled.model_dump(mode="json")) == scaled
