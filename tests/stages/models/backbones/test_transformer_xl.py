"""The Transformer-XL backbone: its equations, what it carries however it is called, what has no
gradient.
"""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.backbone import Inputs
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model, save_weights
from tests.oracles.transformer_xl import Shape, dense, transformer_xl
from tests.stages.models.streams import embeddings, read, weights

V, D, HEADS, LAYERS = 30, 8, 2, 3


def config(length=4, memory=6, **changes):
    sizes = {
        "vocab_size": V,
        "width": D,
        "heads": HEADS,
        "layers": LAYERS,
        "ffn_width": 12,
        "activation": "relu",
    }
    return TransformerXLConfig(
        **{**sizes, "segment_length": length, "mem_length": memory, **changes}
    )


def model(length=4, memory=6, **changes):
    """A model in float64 with weights, biases and norms that are all different."""
    torch.manual_seed(0)
    net = LanguageModel(config(length, memory, **changes)).double().eval()
    for parameter in net.backbone.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return net


SHAPES = [(4, 6), (4, 4), (5, 0), (3, 1), (1, 2), (25, 3), (2, 50)]


@pytest.mark.parametrize(("length", "memory"), SHAPES)
def test_a_stream_is_read_as_the_equations_say(length, memory):
    net = model(length, memory)
    f, g, state, _ = read(net.backbone, embeddings(19))
    kept = min(19, memory + 19 % length)
    for row in range(2):
        want = transformer_xl(
            embeddings(19)[row].numpy(), *weights(net.backbone), Shape(HEADS, length, memory)
        )
        np.testing.assert_allclose(f[row], want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(g[row], want[1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            state["cached"][:, row], want[2][:, 19 - kept :], rtol=1e-5, atol=1e-6
        )
    assert state["place"].tolist() == [19 % length]


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    cuts=st.lists(st.integers(1, 18), max_size=6, unique=True),
    gradients=st.booleans(),
)
def test_however_a_stream_is_cut_the_numbers_are_those_of_one_pass(shape, cuts, gradients):
    backbone = model(*shape).backbone
    whole = read(backbone, embeddings(19))
    for got, want in zip(
        read(backbone, embeddings(19), sorted(cuts), gradients=gradients), whole, strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cuts", [[], [4], [8], [4, 8, 12, 16]])
@pytest.mark.parametrize(("length", "memory"), [(4, 6), (4, 0), (19, 4)])
def test_gradients_stop_at_the_border_of_a_segment(length, memory, cuts):
    backbone = model(length, memory).backbone
    cuts = [cut for cut in cuts if cut % length == 0]
    inputs = embeddings(19, 1).requires_grad_()
    seed = torch.randn(1, 19, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    wanted = [inputs, *backbone.parameters()]
    got = torch.autograd.grad(
        (read(backbone, inputs, cuts, gradients=True).hidden * seed).sum(), wanted
    )
    blocks, last = weights(backbone, lambda module: dict(module.named_parameters()))
    slow = dense(inputs[0], blocks, last, Shape(HEADS, length, memory))
    for mine, want in zip(got, torch.autograd.grad((slow * seed[0]).sum(), wanted), strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-6)


def test_what_is_carried_has_no_gradient():
    state = model().backbone(Inputs(embeddings(19).requires_grad_())).state
    assert not state["cached"].requires_grad
    assert (state["cached"].shape, state["place"].dtype) == ((LAYERS, 2, 9, D), torch.int64)


def test_no_position_sees_what_comes_after_it():
    backbone = model().backbone
    changed = embeddings(19)
    changed[:, 11:, 0] += 1
    with torch.no_grad():
        before, after = backbone(Inputs(embeddings(19))).hidden, backbone(Inputs(changed)).hidden
    torch.testing.assert_close(before[:, :11], after[:, :11])
    assert (before[:, 11:] != after[:, 11:]).all()


@pytest.mark.parametrize("memory", [0, 6])
def test_memory_reaches_as_far_as_its_length_in_every_layer(memory):
    """A change at position 0 is seen through `layers` hops of memory, and by nothing further on."""
    backbone = model(2, memory).backbone
    stream = embeddings(2 + LAYERS * 6 + 4, 1)
    changed = stream.clone()
    changed[:, 0, 0] += 1
    with torch.no_grad():
        differs = (
            (backbone(Inputs(stream)).hidden != backbone(Inputs(changed)).hidden)
            .any(-1)[0]
            .nonzero()
            .flatten()
        )
    assert int(differs.max()) == (1 if memory == 0 else 1 + LAYERS * memory)


def test_low_precision_is_near_and_keeps_exact_states():
    net = LanguageModel(config(16, 16)).eval()
    stream = embeddings(40).float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = net.backbone(Inputs(stream))
    with torch.no_grad():
        full = net.backbone(Inputs(stream)).hidden
    assert float((low.hidden.float() - full).abs().max()) < 0.1
    assert low.state["cached"].dtype == torch.float32


def test_dropout_is_drawn_while_training_alone():
    net = model(dropout=0.5, attention_dropout=0.3)
    tokens = torch.arange(10)[None]
    assert torch.equal(net.encode(tokens).hidden, net.encode(tokens).hidden)
    net.train()
    assert not torch.equal(net.encode(tokens).hidden, net.encode(tokens).hidden)


def test_biases_begin_at_zero_and_deep_outputs_small():
    blocks = LanguageModel(config(width=64, layers=8)).backbone.blocks
    assert not any(
        p.any() for block in blocks for name, p in block.named_parameters() if name.endswith("bias")
    )
    out, distance = blocks[0].attention.out.weight, blocks[0].attention.distance.weight
    assert float(out.detach().std()) == pytest.approx(float(distance.detach().std()) / 4, rel=0.1)


def test_the_same_weights_read_other_segments_and_more_memory_at_test(tmp_path):
    net = LanguageModel(config()).eval()
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model": net.config.model_dump(mode="json")}))
    tokens = torch.randint(V, (1, 20), generator=torch.Generator().manual_seed(3))
    as_trained = load_model(tmp_path, "cpu")
    assert as_trained.config == net.config
    assert torch.equal(as_trained.encode(tokens).hidden, net.encode(tokens).hidden)
    assert load_model(tmp_path, "cpu", WindowSettings(4, 4)).config == net.config
    other = load_model(tmp_path, "cpu", WindowSettings(3, 3, 12))
    fresh = LanguageModel(config(3, 12)).eval()
    fresh.load_state_dict(net.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(other.encode(tokens).hidden, fresh.encode(tokens).hidden)


@pytest.mark.parametrize(("length", "memory"), SHAPES)
def test_room_for_a_state_is_that_of_the_largest_of_a_stream(length, memory):
    net, sizes, state = model(length, memory).float(), [], None
    for _ in range(2 * (length + memory)):
        with torch.no_grad():
            state = net.encode(torch.zeros((1, 1), dtype=torch.int64), state).state
        sizes.append(sum(part.nbytes for part in state.values()))
    assert net.config.state_bytes(length) == max(sizes)


def test_sizes_follow_from_the_segments_of_training():
    bare = TransformerXLConfig()
    assert bare.sized(50, 8) == TransformerXLConfig(vocab_size=50, segment_length=8, mem_length=8)
    assert TransformerXLConfig(mem_length=0).sized(50, 8).mem_length == 0
    assert bare.sized(50, 8).sized(50, 8) == bare.sized(50, 8)
    with pytest.raises(UsageError, match=r"segment_length.*\b4\b.*\b8\b"):
        TransformerXLConfig(segment_length=4).sized(50, 8)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 9, "heads": 3}, "need an even width"),
        ({"heads": 3}, "not a multiple"),
        ({"memory": -1}, "mem_l"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        config(**changes)
