"""The SRU++ backbone: its equations over a stream, how it begins, where it drops, what it refuses."""

import numpy as np
import pytest
import torch

from stages.models.backbone import Inputs
from stages.models.backbones import sru_plus_plus as recurrence
from stages.models.backbones.sru_plus_plus import cells
from stages.models.backbones.stream_configs import SRUPlusPlusConfig
from stages.models.language_model import LanguageModel
from tests.kernels import DEVICE, needs_triton
from tests.oracles import sru_plus_plus as oracle
from tests.oracles.sru_plus_plus import sru_plus_plus
from tests.oracles.transformer_xl import Shape
from tests.stages.models.streams import arrays, embeddings, read

V, D, LAYERS = 30, 8, 3


def config(length=4, memory=6, **changes):
    sizes = {"vocab_size": V, "width": D, "projection": 4, "heads": 2, "layers": LAYERS}
    return SRUPlusPlusConfig(**{**sizes, "segment_length": length, "mem_length": memory, **changes})


def model(length=4, memory=6, **changes):
    """A model in float64 whose weights are all different from how they begin."""
    torch.manual_seed(0)
    net = LanguageModel(config(length, memory, **changes)).double().eval()
    for parameter in net.backbone.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("every", [1, 2, 9])
@pytest.mark.parametrize(("length", "memory"), [(4, 6), (4, 0), (3, 1), (25, 3), (2, 50)])
def test_a_stream_is_read_as_the_equations_say(length, memory, every):
    backbone = model(length, memory, attention_every=every).backbone
    layers = [arrays(block) for block in backbone.blocks]
    assert ["projection.alpha" in layer for layer in layers] == [
        (n + 1) % every == 0 for n in range(LAYERS)
    ]
    hidden, _, state, _ = read(backbone, embeddings(19), [5, 6])
    kept = min(19, memory + 19 % length)
    for row in range(2):
        f, inputs, cells = sru_plus_plus(
            embeddings(19)[row].numpy(), layers, Shape(2, length, memory)
        )
        np.testing.assert_allclose(hidden[row], f, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            state["cached"][:, row], inputs[:, 19 - kept :], rtol=1e-9, atol=1e-11
        )
        got = [state[f"block{n + 1}.c"][row].numpy() for n in range(LAYERS)]
        np.testing.assert_allclose(got, cells, rtol=1e-9, atol=1e-11)


def test_no_gradient_crosses_a_segment():
    backbone, inputs = model(4, 6).backbone, embeddings(8, 1).requires_grad_()
    hidden = backbone(Inputs(inputs)).hidden
    (gradient,) = torch.autograd.grad(hidden[:, 4:].sum(), inputs)
    assert not gradient[:, :4].any() and gradient[:, 4:].all()


def test_it_begins_as_a_recurrence_alone_that_passes_on_its_input():
    torch.manual_seed(0)
    backbone = (
        LanguageModel(config(width=64, projection=16, highway_bias=-30.0)).double().eval().backbone
    )
    assert all(block.projection.alpha.item() == 0 for block in backbone.blocks)
    inputs = torch.randn(1, 9, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(backbone(Inputs(inputs)).hidden, inputs)
    without = (
        LanguageModel(config(width=64, projection=16, highway_bias=-30.0, attention_every=9))
        .double()
        .eval()
    )
    without.backbone.load_state_dict(
        {
            name: w
            for name, w in backbone.state_dict().items()
            if "alpha" not in name and "keys_values" not in name
        }
    )
    torch.testing.assert_close(
        without.backbone(Inputs(inputs)).hidden, backbone(Inputs(inputs)).hidden
    )


def test_a_dropped_cell_is_dropped_at_all_positions_and_in_no_last_layer():
    """Where the highway lets nothing of the input through but the mask, h is x wherever c - x is
    dropped.
    """
    net = model(19, 0, width=64, projection=16, dropout=0.5, layers=2, highway_bias=60.0).train()
    first, last = net.backbone.blocks
    seen = {}
    for name, block in (("first", first), ("last", last)):
        block.register_forward_hook(
            lambda _, given, made, name=name: seen.update({name: (given[1], made[0])})
        )
    inputs = torch.randn(2, 19, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    net.backbone(Inputs(inputs))
    x, h = seen["first"]
    same = x == h
    assert torch.equal(same.all(1), same.any(1)) and 0.3 < float(same.double().mean()) < 0.7
    x, h = seen["last"]
    assert not (x == h).any()


def test_low_precision_is_near_and_keeps_exact_states():
    net = LanguageModel(config(16, 16)).eval()
    stream = embeddings(40).float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = net.backbone(Inputs(stream))
    with torch.no_grad():
        full = net.backbone(Inputs(stream)).hidden
    assert 0 < float((low.hidden.float() - full).abs().max()) < 0.1
    assert {part.dtype for name, part in low.state.items() if name != "place"} == {torch.float32}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"projection": 6, "heads": 4}, "heads may be 1, 2, 3, 6"),
        ({"projection": None, "width": 3, "heads": 1}, "choose a width of 4 or more"),
        ({"attention_every": 0}, "attention_every"),
        ({"memory": -1}, "mem_length"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        config(**changes)


def drawn(length=7, rows=3, width=5, scale=2.0, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = [(length, rows, width), (length, rows, width), (width,), (rows, width)]
    return [scale * torch.randn(shape, dtype=torch.float64, generator=random) for shape in shapes]


def through_time(u, z, v, c):
    made = []
    for t in range(len(u)):
        f = torch.sigmoid(z[t] + v * c)
        c = f * c + (1 - f) * u[t]
        made.append(c)
    return torch.stack(made)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
def test_cells_are_those_of_the_equations(length, scale):
    """A scale of 300 closes and opens gates for good."""
    inputs = drawn(length, scale=scale)
    got = cells(*inputs)
    for row in range(3):
        u, z, v, before = (part.numpy() for part in inputs)
        with np.errstate(over="ignore"):
            want = oracle.cells(u[:, row], z[:, row], v, before[row])
        np.testing.assert_allclose(got[:, row], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 6])
def test_gradients_are_those_through_a_loop(length):
    mine, slow = (
        [part.clone().requires_grad_() for part in drawn(length, seed=1)] for _ in range(2)
    )
    seed = torch.randn(
        length, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    got = torch.autograd.grad((cells(*mine) * seed).sum(), mine)
    for one, want in zip(
        got, torch.autograd.grad((through_time(*slow) * seed).sum(), slow), strict=True
    ):
        torch.testing.assert_close(one, want, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_small_steps():
    assert torch.autograd.gradcheck(cells, [part.requires_grad_() for part in drawn(4, 2, 3, 1.0)])


def test_inputs_are_left_as_they_were():
    inputs = drawn()
    copies = [part.clone() for part in inputs]
    cells(*(part.requires_grad_() for part in inputs)).sum().backward()
    for part, copy in zip(inputs, copies, strict=True):
        assert torch.equal(part, copy)


def in_triton(monkeypatch):
    """Cells as a GPU makes them."""
    monkeypatch.setattr(recurrence, "runs_triton", lambda device: True)
    return lambda *given: cells(*(part.to(DEVICE) for part in given)).cpu()


@needs_triton
@pytest.mark.parametrize(("length", "rows", "width"), [(1, 1, 1), (7, 3, 5), (5, 13, 11)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_kernels_give_the_cells_and_gradients_of_a_loop(monkeypatch, length, rows, width, scale):
    """13 x 11 cells are two programs and a part of a third."""
    mine, slow = (
        [part.clone().requires_grad_() for part in drawn(length, rows, width, scale)]
        for _ in range(2)
    )
    seed = torch.randn(
        length, rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    got, want = in_triton(monkeypatch)(*mine), through_time(*slow)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    grads = (
        torch.autograd.grad((made * seed).sum(), given)
        for made, given in ((got, mine), (want, slow))
    )
    for one, right in zip(*grads, strict=True):
        torch.testing.assert_close(one, right, rtol=1e-12, atol=1e-12)


@needs_triton
def test_kernels_take_float32_that_does_not_lie_in_a_row(monkeypatch):
    u, z, v, before = (part.float() for part in drawn(4, 6, 5, 1.0))
    turned = [part.transpose(0, 1).contiguous().transpose(0, 1) for part in (u, z)]
    torch.testing.assert_close(
        in_triton(monkeypatch)(*turned, v, before), through_time(u, z, v, before)
    )
