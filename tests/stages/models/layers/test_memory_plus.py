"""Memory+: its equations, its gradients, and values that a model has once."""

import copy

import numpy as np
import pytest
import torch

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel, parameter_count
from stages.models.layers.memory_settings import MemoryPlusSettings
from stages.models.layers.product_keys import MemoryPlus
from stages.models.weights import load_model, save_weights
from tests.oracles.product_keys import product_keys
from tests.stages.models.backbones.contract import BackboneContract

WIDTH, N, K = 8, 6, 3
KEYS = {"name": "memory-plus", "heads": 2, "sub_keys": N, "neighbors": K}


def layer():
    """In float64, with weights that are all different."""
    torch.manual_seed(0)
    made = MemoryPlus(TransformerConfig(width=WIDTH), MemoryPlusSettings(**KEYS)).double()
    made.initialize(2)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def inputs(rows=2, length=3):
    return torch.randn(
        rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def model(blocks=(1, 3), **changes):
    torch.manual_seed(0)
    sizes = {"width": WIDTH, "layers": 3, "heads": 2, "dropout": 0.0, **changes}
    return LanguageModel(
        parse_model({**sizes, "feed_forward": KEYS | {"layers": blocks}}).sized(30, 5)
    )


def test_it_reads_as_the_equations_say():
    made, x = layer(), inputs().flatten(0, 1).numpy()
    w = {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}
    gate = x @ w["gate.weight"].T
    wanted = (product_keys(x, w, K) * gate / (1 + np.exp(-gate))) @ w["out.weight"].T
    with torch.no_grad():
        np.testing.assert_allclose(made(inputs()).flatten(0, 1), wanted, rtol=1e-10, atol=1e-10)


def test_gradients_are_those_of_differences():
    made = layer()
    names, weights = zip(*made.named_parameters(), strict=True)

    def read(x, *values):
        return torch.func.functional_call(made, dict(zip(names, values, strict=True)), (x,))

    given = (inputs(1).requires_grad_(), *(w.detach().requires_grad_() for w in weights))
    assert torch.autograd.gradcheck(read, given)


def test_a_model_has_the_values_once_and_all_its_layers_read_them():
    shared = model()
    named = [name for name, _ in shared.named_parameters() if name.endswith("values")]
    assert named == [name for name in shared.state_dict() if name.endswith("values")]
    assert named == ["backbone.blocks.0.ffn.values"]
    assert parameter_count(shared.config) == sum(p.numel() for p in shared.parameters())
    tokens = torch.arange(10).view(2, 5)
    before = shared.encode(tokens).hidden
    third = shared.backbone.blocks[2].ffn
    hook = third.register_forward_hook(lambda _, given, out: torch.zeros_like(out))
    shared.backbone.blocks[0].ffn.values.data += 1
    without = shared.encode(tokens).hidden
    hook.remove()
    assert (shared.encode(tokens).hidden - without).abs().max() > 1e-3
    assert (before - without).abs().max() > 1e-3


@pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
def test_their_gradient_is_the_sum_of_those_of_layers_that_have_their_own(backbone):
    shared, own = (model(backbone=backbone).double() for _ in range(2))
    first, last = (own.backbone.blocks[place].ffn for place in (0, 2))
    last.values, last._owner = torch.nn.Parameter(first.values.detach().clone()), (last,)
    tokens = torch.arange(10).view(2, 5)
    for one in (shared, own):
        one.loss(one.encode(tokens).hidden.flatten(0, 1), tokens.flatten()).backward()
    got = shared.backbone.blocks[0].ffn.values.grad
    torch.testing.assert_close(got, first.values.grad + last.values.grad)
    assert last.values.grad.any()
    assert not torch.equal(got, first.values.grad)


def test_a_copy_and_a_file_have_their_own(tmp_path):
    net = model()
    tokens = torch.arange(10).view(2, 5)
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(f'{{"model": {net.config.model_dump_json()}}}')
    again, copied = load_model(tmp_path, "cpu"), copy.deepcopy(net.eval())
    wanted = net.encode(tokens).hidden
    net.backbone.blocks[0].ffn.values.data.zero_()
    for other in (again, copied):
        assert torch.equal(other.encode(tokens).hidden, wanted)
    assert not torch.equal(net.encode(tokens).hidden, wanted)


@pytest.mark.parametrize(
    ("blocks", "usual"), [(1, (1,)), (2, (1, 2)), (4, (1, 2, 3)), (16, (4, 8, 12))]
)
def test_it_stands_in_three_blocks_around_the_middle(blocks, usual):
    config = parse_model({"layers": blocks, "feed_forward": {"name": "memory-plus"}})
    assert config.blocks_with("feed_forward") == usual


class TestBackboneOfIt(BackboneContract):
    """A backbone with it keeps the contract of every backbone."""

    @pytest.fixture(params=["transformer", "transformer-xl"])
    def backbone(self, request):
        return request.param

    @pytest.fixture
    def config(self, backbone):
        return parse_model(
            {"backbone": backbone, "width": 8, "layers": 3, "feed_forward": KEYS}
        ).sized(30, 5)
