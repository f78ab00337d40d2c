"""Compressive attention: its equations, what it remembers however a stream is cut, and what has a
gradient.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers.memory_settings import CompressiveSettings
from tests.oracles.compressive import Shape, compressive, reconstruction_loss, slot, slots_before
from tests.stages.models.backbones.contract import BackboneContract
from tests.stages.models.layers.precision import assert_low_precision_is_near
from tests.stages.models.streams import embeddings, read, weights

V, D, HEADS, LAYERS, T = 30, 8, 2, 2, 21
SHAPES = [
    Shape(HEADS, 4, 4, 3, 2),
    Shape(HEADS, 4, 0, 5, 2),
    Shape(HEADS, 3, 6, 2, 3),
    Shape(HEADS, 2, 4, 100, 1),
]
KINDS = ["conv", "mean", "max"]


def config(shape, compression="conv", **changes):
    chosen = CompressiveSettings(long_length=shape.slots, rate=shape.rate, compression=compression)
    sizes = {
        "vocab_size": V,
        "width": D,
        "heads": HEADS,
        "layers": LAYERS,
        "ffn_width": 12,
        "activation": "relu",
    }
    lengths = {"segment_length": shape.length, "mem_length": shape.memory}
    return TransformerXLConfig(
        **{**sizes, **lengths, "dropout": 0.0, "attention": chosen, **changes}
    )


def model(shape, compression="conv", **changes):
    """In float64, with weights, biases and norms that are all different."""
    torch.manual_seed(0)
    net = LanguageModel(config(shape, compression, **changes)).double().eval()
    for parameter in net.backbone.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("compression", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_is_read_as_the_equations_say(shape, compression):
    net = model(shape, compression)
    hidden, _, state, _ = read(net.backbone, embeddings(T))
    blocks, last = weights(net.backbone)
    for row in range(2):
        wanted, inputs = compressive(embeddings(T)[row].numpy(), blocks, last, shape, compression)
        np.testing.assert_allclose(hidden[row], wanted, rtol=1e-5, atol=1e-6)
        kept = slots_before(T // shape.length, shape)
        for block, (w, x) in enumerate(zip(blocks, inputs, strict=True), 1):
            slots = state[f"block{block}.slots"]
            assert slots.shape == (2, len(kept), D)
            made = np.array([slot(x, n, w, shape, compression) for n in kept]).reshape(-1, D)
            np.testing.assert_allclose(slots[row], made, rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(SHAPES), st.lists(st.integers(1, T - 1), max_size=6, unique=True), st.booleans()
)
def test_however_a_stream_is_cut_the_numbers_are_those_of_one_pass(shape, cuts, gradients):
    backbone = model(shape).backbone
    whole, cut = (
        read(backbone, embeddings(T), pieces, gradients=gradients)[:3]
        for pieces in ([], sorted(cuts))
    )
    torch.testing.assert_close(cut, whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("compression", KINDS)
@pytest.mark.parametrize("cuts", [[], [3, 8, 15]])
def test_the_loss_is_what_attention_cannot_read_any_more(compression, cuts):
    """A mean over layers, rows, positions and dimensions, each time that a segment ends."""
    shape = SHAPES[0]
    net = model(shape, compression).train()
    got = read(net.backbone, embeddings(T), cuts).auxiliary
    blocks, last = weights(net.backbone)
    wanted = 0.0
    for row in range(2):
        _, inputs = compressive(embeddings(T)[row].numpy(), blocks, last, shape, compression)
        for w, x in zip(blocks, inputs, strict=True):
            ended = range(1, T // shape.length)  # when the first ends, nothing is dropped yet
            wanted += sum(reconstruction_loss(w, x, n, shape, compression) for n in ended) / (
                2 * LAYERS
            )
    assert float(got) == pytest.approx(wanted, rel=1e-5)


def test_the_loss_reaches_what_compresses_alone_and_the_models_loss_all_else():
    net = model(SHAPES[0]).train()
    stream = embeddings(T).requires_grad_()
    hidden, _, _, auxiliary = read(net.backbone, stream, gradients=True)
    compressing = [name for name, _ in net.backbone.named_parameters() if ".compress." in name]
    auxiliary.backward(retain_graph=True)
    with_gradient = [
        name for name, p in net.backbone.named_parameters() if p.grad is not None and p.grad.any()
    ]
    assert with_gradient == compressing
    assert stream.grad is None
    net.zero_grad()
    hidden.sum().backward()
    assert [name for name, p in net.backbone.named_parameters() if p.grad is None] == compressing
    assert all(p.requires_grad for p in net.parameters())


def test_what_is_carried_has_no_gradient():
    state = read(
        model(SHAPES[0]).train().backbone, embeddings(T).requires_grad_(), gradients=True
    ).state
    assert not any(part.requires_grad for part in state.values())


def test_nothing_is_lost_where_there_is_nothing_to_compress():
    """One position a slot, and weights that say so: slots are what was dropped."""
    net = model(Shape(HEADS, 2, 4, 100, 1), "mean")
    farther = model(Shape(HEADS, 2, 104, 0, 1), "mean")
    torch.testing.assert_close(
        read(net.backbone, embeddings(T)).hidden, read(farther.backbone, embeddings(T)).hidden
    )


def test_it_begins_as_the_mean():
    shape = Shape(HEADS, 4, 4, 3, 2)
    layer = LanguageModel(config(shape)).backbone.blocks[0].attention
    x = torch.randn(2, 6, D)
    torch.testing.assert_close(layer.compress(x), x.view(2, 3, 2, D).mean(2))


def test_what_compresses_learns_apart():
    net = LanguageModel(config(SHAPES[0]))
    (first, _) = (block.attention.separate_parameters() for block in net.backbone.blocks)
    assert [p.shape for p in first.parameters] == [(D, 2 * D), (D,)]
    assert first.lr is None


def test_more_slots_at_test_are_those_of_a_model_that_has_more():
    net = model(SHAPES[0])
    longer = net.config.reading(WindowSettings(6, 6, 2, 9))
    assert (longer.segment_length, longer.mem_length, longer.lengths.remembered) == (6, 2, 9)
    assert net.config.reading(WindowSettings(4, 4)) == net.config
    other = LanguageModel(longer).double().eval()
    other.load_state_dict(net.state_dict())
    shape = Shape(HEADS, 6, 2, 9, 2)
    wanted, _ = compressive(embeddings(T)[0].numpy(), *weights(net.backbone), shape, "conv")
    np.testing.assert_allclose(
        read(other.backbone, embeddings(T)[:1]).hidden[0], wanted, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("segment", "memory", "words"),
    [
        (6, 8, "--segment-length, or --context at test, is 6, no multiple of 4: 8 is"),
        (8, 5, "--mem-length is 5.*: 4 is"),
    ],
)
def test_lengths_that_do_not_divide_are_refused_with_one_that_does(segment, memory, words):
    bare = TransformerXLConfig(mem_length=memory, attention=CompressiveSettings(rate=4))
    with pytest.raises(UsageError, match=words):
        bare.sized(V, segment)
    with pytest.raises(UsageError, match=words):
        bare.model_copy(update={"mem_length": 8}).sized(V, 8).reading(
            WindowSettings(segment, segment, memory)
        )


def test_low_precision_is_near_and_keeps_exact_states():
    assert_low_precision_is_near(model(SHAPES[0]).float().train(), embeddings(T).float())


class TestBackboneOfIt(BackboneContract):
    """A backbone with it keeps the contract of every backbone."""

    @pytest.fixture
    def backbone(self):
        return "transformer-xl"

    @pytest.fixture(params=[("conv", None), ("mean", (2,))])
    def config(self, request, backbone):
        compression, blocks = request.param
        chosen = {"name": "compressive", "long_length": 3, "rate": 5, "compression": compression}
        return parse_model(
            {"backbone": backbone, "width": 8, "attention": {**chosen, "layers": blocks}}
        ).sized(30, 5)
