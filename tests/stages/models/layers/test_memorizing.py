"""Memorizing attention: its equations, what it remembers however a stream is cut, and what has a
gradient.
"""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.examples.cutting import WindowSettings
from stages.models.backbone import Inputs
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers import memorizing as layer
from stages.models.layers.memorizing import bucket_numbers
from stages.models.layers.memory_settings import MemorizingSettings
from tests.oracles.memorizing import Shape, bucket, memorizing
from tests.stages.models.backbones.contract import BackboneContract
from tests.stages.models.layers.precision import assert_low_precision_is_near
from tests.stages.models.streams import arrays, embeddings, read

V, D, HEADS, T, BUCKETS, LONGEST = 30, 8, 2, 23, 6, 10
SHAPES = [
    Shape(HEADS, 4, 4, 8, 3),
    Shape(HEADS, 4, 0, 100, 5),
    Shape(HEADS, 3, 6, 7, 100),
    Shape(HEADS, 5, 2, 0, 2),
]
ENTRIES = ("block1.keys", "block1.values")
BEGINS = [[0, 7, 13], [0, 3]]
"""Where the documents of two rows begin."""


def starts(row):
    """Of each position the first of its document."""
    return [max(begin for begin in BEGINS[row] if begin <= i) for i in range(T)]


BACK = torch.tensor([[i - start for i, start in enumerate(starts(row))] for row in (0, 1)])


def model(shape, **changes):
    """Of one block, in float64, with weights, biases and norms that are all different."""
    torch.manual_seed(0)
    chosen = {"long_length": shape.entries, "neighbors": shape.neighbors, "buckets": BUCKETS}
    sizes = {
        "vocab_size": V,
        "width": D,
        "heads": HEADS,
        "layers": 1,
        "ffn_width": 12,
        "activation": "relu",
    }
    lengths = {"segment_length": shape.length, "mem_length": shape.memory, "dropout": 0.0}
    own = MemorizingSettings(**chosen, longest_distance=LONGEST, **changes)
    net = LanguageModel(TransformerXLConfig(**sizes, **lengths, attention=own)).double().eval()
    for parameter in net.backbone.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return net


def weights(backbone):
    return arrays(backbone.blocks[0]), arrays(backbone.norm)


@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_is_read_as_the_equations_say(shape, documents):
    """An entry of another document is not found; each row has its own documents."""
    net = model(shape)
    hidden = read(net.backbone, embeddings(T), [], BACK if documents else None).hidden
    for row in range(2):
        own = starts(row) if documents else [0] * T
        wanted = memorizing(embeddings(T)[row].numpy(), *weights(net.backbone), shape, own, LONGEST)
        np.testing.assert_allclose(hidden[row], wanted, rtol=1e-6, atol=1e-8)


def test_in_scope_stream_documents_do_not_matter():
    net = model(SHAPES[0], scope="stream")
    assert not net.config.reads.documents
    torch.testing.assert_close(
        *(read(net.backbone, embeddings(T), [], back).hidden for back in (BACK, None))
    )


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.integers(1, T - 1), max_size=6, unique=True),
    st.booleans(),
    st.sampled_from([1, 40, 1 << 24]),
)
def test_however_a_stream_and_the_search_are_cut_the_numbers_are_those_of_one_pass(
    shape, cuts, gradients, scores
):
    backbone = model(shape).backbone
    whole = read(backbone, embeddings(T), [], BACK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer, "SCORES", scores)
        cut = read(backbone, embeddings(T), sorted(cuts), BACK, gradients)
    torch.testing.assert_close(cut, whole, rtol=1e-10, atol=1e-10)


def test_memory_holds_keys_and_values_as_they_were_made():
    """The weights change after the first segment; its entries do not."""
    net = model(SHAPES[0])
    first = net.backbone(Inputs(embeddings(T)[:, :4])).state
    for parameter in net.backbone.parameters():
        parameter.data += 1
    after = net.backbone(Inputs(embeddings(T)[:, 4:8], first)).state
    for name in ENTRIES:
        torch.testing.assert_close(after[name][:, :, :4], first[name])
        assert after[name].shape == (2, HEADS, 8, D // HEADS)


def test_gradients_reach_what_asks_and_not_what_is_remembered():
    net = model(SHAPES[0])
    state = net.backbone(Inputs(embeddings(T)[:, :8].requires_grad_())).state
    assert not any(part.requires_grad for part in state.values())
    memory = {name: state[name].clone().requires_grad_() for name in ENTRIES}
    net.backbone(
        Inputs(embeddings(T)[:, 8:12], {**state, **memory})
    ).hidden.square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.any()
        for parameter in net.backbone.parameters()
    )
    # What was found enters with its gradient only through queries: entries that are handed in as
    # leaves have one, but the backbone hands them on without.
    assert not any(
        part.requires_grad
        for part in net.backbone(Inputs(embeddings(T)[:, 8:12], state)).state.values()
    )


def test_a_gate_that_is_shut_leaves_local_attention():
    net, shape = model(SHAPES[0]), SHAPES[0]
    net.backbone.blocks[0].attention.gate.data.fill_(-100)
    alone = model(shape._replace(entries=0))
    alone.load_state_dict(net.state_dict())
    torch.testing.assert_close(*(read(one.backbone, embeddings(T)).hidden for one in (net, alone)))


def test_it_begins_with_half_open_gates_and_a_scale_that_lets_one_of_many_stand_out():
    sizes = {
        "backbone": "transformer-xl",
        "width": 8,
        "heads": 2,
        "attention": {"name": "memorizing"},
    }
    layer = LanguageModel(parse_model(sizes).sized(V, 64)).backbone.blocks[1].attention
    assert layer.gates().tolist() == [0.5, 0.5]
    assert layer.log_scale.exp().tolist() == pytest.approx([11.98] * 2, abs=0.01)


def test_a_scale_is_bounded_and_a_head_beyond_the_bound_can_come_back():
    net = model(SHAPES[0])
    scales = net.backbone.blocks[0].attention.log_scale
    scales.data = torch.tensor([log(30), 200], dtype=torch.float64)
    hidden = net.backbone(Inputs(embeddings(T)[:1])).hidden
    wanted = memorizing(
        embeddings(T)[0].numpy(), *weights(net.backbone), SHAPES[0], [0] * T, LONGEST
    )
    np.testing.assert_allclose(hidden[0].detach(), wanted, rtol=1e-6, atol=1e-8)
    hidden.square().sum().backward()
    assert scales.grad.isfinite().all()
    assert (scales.grad != 0).all()


def test_buckets_are_those_of_t5():
    wanted = [bucket(n, 32, 128) for n in range(300)]
    assert bucket_numbers(300, 32, 128).tolist() == wanted
    assert wanted[:17] == [*range(16), 16]
    assert (wanted[127], wanted[299]) == (31, 31)


def test_a_longer_memory_at_test():
    net = model(SHAPES[0])
    longer = net.config.reading(WindowSettings(4, 4, 4, 12))
    assert longer.lengths.remembered == 12
    other = LanguageModel(longer).double().eval()
    other.load_state_dict(net.state_dict())
    shape = SHAPES[0]._replace(entries=12)
    wanted = memorizing(embeddings(T)[0].numpy(), *weights(net.backbone), shape, starts(0), LONGEST)
    np.testing.assert_allclose(
        read(other.backbone, embeddings(T), [], BACK).hidden[0], wanted, rtol=1e-6, atol=1e-8
    )


def test_low_precision_is_near_and_keeps_exact_states():
    assert_low_precision_is_near(model(SHAPES[0]).float().train(), embeddings(T).float())


class TestBackboneOfIt(BackboneContract):
    """A backbone with it keeps the contract of every backbone."""

    @pytest.fixture
    def backbone(self):
        return "transformer-xl"

    @pytest.fixture(params=[None, (2,)])
    def config(self, request, backbone):
        chosen = {"name": "memorizing", "long_length": 9, "neighbors": 3, "layers": request.param}
        return parse_model({"backbone": backbone, "width": 8, "attention": chosen}).sized(30, 5)


def test_gates_begin_where_they_are_told_and_may_learn_at_their_own_rate():
    config = TransformerXLConfig(width=8, heads=2, layers=1, ffn_width=8)
    usual, told = (
        layer.MemorizingAttention(config, chosen)
        for chosen in (MemorizingSettings(), MemorizingSettings(gate_bias=5, gate_lr=1e-2))
    )
    for made in (usual, told):
        made.initialize(1)
    assert usual.gate.tolist() == [0, 0] and told.gate.tolist() == [5, 5]
    assert (usual.separate_parameters().parameters, told.separate_parameters()) == (
        [],
        ([told.gate], 1e-2),
    )
