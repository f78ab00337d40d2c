"""Attention to a continuous signal: its equations, what it remembers however a stream is cut, what
has a gradient.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.backbone import Inputs
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers.infinity import Readout
from stages.models.layers.memory_settings import InfinitySettings
from tests.oracles.infinity import Shape, infinity
from tests.stages.models.backbones.contract import BackboneContract
from tests.stages.models.layers.precision import assert_low_precision_is_near
from tests.stages.models.streams import embeddings, read, weights

V, D, HEADS, LAYERS, T = 30, 8, 2, 2, 26
SHAPES = [
    Shape(HEADS, 4, 4, 6, 5, 0.75, True),
    Shape(HEADS, 4, 4, 6, 5, 0.75, False),
    Shape(HEADS, 3, 0, 8, 9, 0.5, True),
    Shape(HEADS, 3, 6, 5, 1, 0.2, True, widths=(0.1,)),
    Shape(HEADS, 1, 2, 4, 4, 0.9, False, ridge=5.0),
]
BEGINS = [[0, 3, 18], [0, 12]]
"""Where the documents of two rows begin."""


def starts(row):
    """Of each position the first of its document."""
    return [max(begin for begin in BEGINS[row] if begin <= i) for i in range(T)]


BACK = torch.tensor([[i - start for i, start in enumerate(starts(row))] for row in (0, 1)])


def config(shape, **changes):
    names = ("basis", "samples", "contraction", "sticky", "widths", "ridge", "deviation")
    chosen = InfinitySettings(**{name: getattr(shape, name) for name in names}, **changes)
    sizes = {
        "vocab_size": V,
        "width": D,
        "heads": HEADS,
        "layers": LAYERS,
        "ffn_width": 12,
        "activation": "relu",
    }
    lengths = {"segment_length": shape.length, "mem_length": shape.memory}
    return TransformerXLConfig(**sizes, **lengths, dropout=0.0, attention=chosen)


def model(shape, **changes):
    """In float64, with weights, biases and norms that are all different, and attention that is not
    flat.
    """
    torch.manual_seed(0)
    net = LanguageModel(config(shape, **changes)).double().eval()
    for name, parameter in net.backbone.named_parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
        if name.endswith("focus.weight"):
            parameter.data *= 10
    return net


@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_is_read_as_the_equations_say(shape, documents):
    """Coefficients, places and expectations as slow loops have them; nothing of another document is
    read.
    """
    net = model(shape)
    hidden, _, state, _ = read(net.backbone, embeddings(T), [], BACK if documents else None)
    for row in range(2):
        own = starts(row) if documents else [0] * T
        wanted, reads = infinity(embeddings(T)[row].numpy(), *weights(net.backbone), shape, own)
        np.testing.assert_allclose(
            hidden[row], wanted, rtol=1e-4, atol=1e-5
        )  # distances are made in float32
        for layer, one in enumerate(reads, 1):
            np.testing.assert_allclose(
                state[f"block{layer}.coefficients"][row], one.signals[-1], rtol=1e-4, atol=1e-5
            )
            assert (
                np.ptp([mean for look in one.looks for mean, _ in look]) > 0.1
            )  # they look at several places
            assert one.divergence


def test_in_scope_stream_documents_do_not_matter():
    net = model(SHAPES[0], scope="stream")
    assert not net.config.reads.documents
    torch.testing.assert_close(
        *(read(net.backbone, embeddings(T), [], back).hidden for back in (BACK, None))
    )


def test_nothing_of_an_earlier_document_is_in_memory():
    """Beyond the cache: other tokens in the documents before change nothing of the last one's
    coefficients.
    """
    shape = Shape(HEADS, 4, 0, 6, 5, 0.75, True)
    net, other = model(shape), embeddings(T)
    other[0, : BEGINS[0][-1]] += 1
    other[1, : BEGINS[1][-1]] -= 1
    one, two = (read(net.backbone, stream, [], BACK).state for stream in (embeddings(T), other))
    assert one["block1.coefficients"].any(2).any(1).all()
    torch.testing.assert_close(
        one["block1.coefficients"], two["block1.coefficients"], rtol=0, atol=0
    )
    whole = [
        read(net.backbone, stream).state["block1.coefficients"] for stream in (embeddings(T), other)
    ]
    assert (whole[0] != whole[1]).any()


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.integers(1, T - 1), max_size=6, unique=True),
    st.booleans(),
    st.booleans(),
)
def test_however_a_stream_is_cut_the_numbers_are_those_of_one_pass(
    shape, cuts, gradients, documents
):
    backbone, back = model(shape).backbone, BACK if documents else None
    whole = read(backbone, embeddings(T), [], back)[:3]
    cut = read(backbone, embeddings(T), sorted(cuts), back, gradients)[:3]
    torch.testing.assert_close(cut, whole, rtol=1e-8, atol=1e-8)


def test_a_row_knows_nothing_of_the_others():
    net = model(SHAPES[0])
    both = read(net.backbone, embeddings(T), [], BACK)
    for row in (0, 1):
        hidden, _, state, _ = read(
            net.backbone, embeddings(T)[row : row + 1], [], BACK[row : row + 1]
        )
        torch.testing.assert_close(hidden[0], both.hidden[row])
        for name in ("block1.coefficients", "block2.coefficients"):
            torch.testing.assert_close(state[name][0], both.state[name][row])


@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("cuts", [[], [3, 8, 15]])
def test_the_loss_holds_the_width_of_attention_where_there_is_a_signal(cuts, documents):
    """A mean over layers, rows, heads and the positions of a segment, summed over segments."""
    shape = SHAPES[0]
    net = model(shape, kl=0.01).train()
    got = read(net.backbone, embeddings(T), cuts, BACK if documents else None).auxiliary
    wanted = 0.0
    for row in range(2):
        own = starts(row) if documents else [0] * T
        _, reads = infinity(embeddings(T)[row].numpy(), *weights(net.backbone), shape, own)
        wanted += (
            sum(sum(one.divergence) for one in reads) * 0.01 / (2 * LAYERS * HEADS * shape.length)
        )
    assert float(got) == pytest.approx(wanted, rel=1e-4)


def test_the_loss_is_0_where_attention_is_as_wide_as_it_should_be_and_grows_to_both_sides():
    layer = model(SHAPES[0]._replace(deviation=0.7), kl=1.0).backbone.blocks[0].attention
    seen, mean = torch.ones(2, 4, dtype=torch.bool), torch.rand(2, HEADS, 4)
    wide, right, narrow = (
        float(layer.divergence(Readout(mean, mean, torch.full_like(mean, factor * 0.49)), seen))
        for factor in (2, 1, 0.5)
    )
    assert right == pytest.approx(0, abs=1e-6)
    assert min(wide, narrow) > 0.01


def test_gradients_reach_what_reads_and_the_gate_of_what_is_new_and_nothing_that_is_carried():
    net = model(SHAPES[0], kl=0.01).train()
    before, own = (part.requires_grad_() for part in embeddings(T).split((12, T - 12), 1))
    state = net.backbone(Inputs(before)).state
    assert not any(part.requires_grad for part in state.values())
    encoding = net.backbone(Inputs(own[:, :4], state))
    encoding.hidden.square().sum().backward(retain_graph=True)
    assert [
        n for n, p in net.backbone.named_parameters() if p.grad is None or not p.grad.any()
    ] == []
    assert (before.grad, bool(own.grad.any())) == (None, True)
    assert not any(part.requires_grad for part in encoding.state.values())
    net.zero_grad()
    encoding.auxiliary_loss.backward()
    reached = {
        n
        for n, p in net.backbone.blocks[-1].named_parameters()
        if p.grad is not None and p.grad.any()
    }
    looks = {
        "reader.focus.weight",
        "reader.keys.weight",
        "writer.gate.taps.weight",
        "writer.gate.taps.bias",
    }
    assert reached == {
        "attention_norm.weight",
        "attention_norm.bias",
        "attention.relative.qkv.weight",
        *(f"attention.{name}" for name in looks),
    }


def test_without_a_weight_of_the_loss_none_is_added():
    net = model(SHAPES[0], kl=0.0).train()
    assert net.backbone(Inputs(embeddings(T))).auxiliary_loss.item() == 0


def test_a_longer_cache_and_other_segments_at_test():
    net = model(SHAPES[0])
    longer = net.config.reading(WindowSettings(3, 3, 6))
    assert (longer.segment_length, longer.mem_length, longer.lengths.remembered) == (3, 6, None)
    other = LanguageModel(longer).double().eval()
    other.load_state_dict(net.state_dict())
    wanted, _ = infinity(
        embeddings(T)[0].numpy(),
        *weights(net.backbone),
        SHAPES[0]._replace(length=3, memory=6),
        starts(0),
    )
    np.testing.assert_allclose(
        read(other.backbone, embeddings(T), [], BACK).hidden[0], wanted, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("context", "memory", "near"), [(4, 6, 8), (4, 1, 0), (5, 13, 15)])
def test_a_cache_of_no_whole_segments_is_refused_with_one_that_is(context, memory, near):
    words = f"--mem-length is a multiple of the segment length .*, {context}; {memory} is none: {near} is"
    with pytest.raises(UsageError, match=words):
        TransformerXLConfig(mem_length=memory, attention=InfinitySettings()).sized(V, context)
    whole = TransformerXLConfig(mem_length=8, attention=InfinitySettings()).sized(V, 8)
    with pytest.raises(UsageError, match=words):
        whole.reading(WindowSettings(context, context, memory))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"basis": 63}, "basis 63 is not a multiple of the number of widths, 2: 64 is"),
        ({"basis": 1}, "basis 1 is not a multiple of the number of widths, 2: 2 is"),
        ({"basis": 10, "widths": (0.1, 0.2, 0.3)}, "3: 9 is"),
        ({"basis": 5000}, "less than or equal to 4096"),
        ({"contraction": 1.0}, "less than 1"),
        ({"ridge": 0}, "greater than or equal to 0.0001"),
        ({"widths": ()}, "at least 1"),
        ({"widths": (0.1, 0.0)}, "greater than or equal to 0.001"),
        ({"deviation": 0.0}, "greater than or equal to 0.001"),
    ],
)
def test_settings_that_make_no_signal_are_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        InfinitySettings(**changes)


@pytest.mark.parametrize("sticky", [True, False])
def test_state_that_does_not_stick_is_not_carried(sticky):
    spec = config(SHAPES[0]._replace(sticky=sticky)).state_spec(4)
    shapes = {"coefficients": (1, 6, D), "left": (1, 4, D)} | (
        {"attention": (1, 128)} if sticky else {}
    )
    wanted = {f"block{block}.{name}": shape for block in (1, 2) for name, shape in shapes.items()}
    assert {name: one.shape for name, one in spec.items() if name.startswith("block")} == wanted


def test_low_precision_is_near_and_keeps_exact_states():
    assert_low_precision_is_near(model(SHAPES[0]).float().train(), embeddings(T).float())


class TestBackboneOfIt(BackboneContract):
    """A backbone with it keeps the contract of every backbone."""

    @pytest.fixture
    def backbone(self):
        return "transformer-xl"

    @pytest.fixture(params=[(True, None), (False, (2,))])
    def config(self, request, backbone):
        sticky, blocks = request.param
        chosen = {"name": "infinity", "basis": 6, "samples": 4, "sticky": sticky, "layers": blocks}
        return parse_model({"backbone": backbone, "width": 8, "attention": chosen}).sized(30, 5)
