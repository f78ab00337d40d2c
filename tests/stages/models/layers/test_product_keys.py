"""Product-key memory: its equations, its gradients, what its values learn by, and backbones that
have it.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers.memory_settings import ProductKeysSettings
from stages.models.layers.product_keys import ProductKeys, best_slots
from stages.models.weights import load_model, save_weights
from tests.oracles.product_keys import all_scores, dense, product_keys, read
from tests.stages.models.backbones.contract import BackboneContract

WIDTH, HEADS, N, K = 8, 3, 7, 4


def layer(**changes):
    """In float64 and evaluation mode, with norms and biases that are all different."""
    torch.manual_seed(0)
    settings = ProductKeysSettings(
        **{"heads": HEADS, "sub_keys": N, "neighbors": K, "query_width": 6, **changes}
    )
    made = ProductKeys(TransformerConfig(width=WIDTH), settings).double().eval()
    made.initialize(2)
    for parameter in made.lookup.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def inputs(rows=2, length=5):
    return torch.randn(
        rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def test_it_reads_as_the_equations_say():
    made = layer(query_norm="layer")
    weights = {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}
    with torch.no_grad():
        wanted = product_keys(inputs().flatten(0, 1).numpy(), weights, K)
        np.testing.assert_allclose(made(inputs()).flatten(0, 1), wanted, rtol=1e-10, atol=1e-10)


def test_in_training_queries_are_normalized_over_the_batch_and_gradients_are_those_of_all_slots():
    made, x = layer().train(), inputs().requires_grad_()
    wanted = [x, *made.parameters()]
    seed = torch.randn(10, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    read = made(x).flatten(0, 1)
    slow = dense(x.flatten(0, 1), dict(made.named_parameters()), K)
    torch.testing.assert_close(read, slow)
    got = torch.autograd.grad((read * seed).sum(), wanted)
    for mine, want in zip(got, torch.autograd.grad((slow * seed).sum(), wanted), strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-6, atol=1e-10)


def test_at_test_no_query_knows_the_others():
    made = layer()
    made.train()(inputs())
    alone = made.eval()(inputs()[:, 2:3])
    torch.testing.assert_close(alone, made(inputs())[:, 2:3])


def test_weights_add_up_and_only_slots_that_were_read_have_gradients():
    made = layer()
    slots, weights = made.lookup(inputs())
    assert slots.shape == weights.shape == (2, 5, HEADS, K)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, HEADS, dtype=torch.float64))
    made(inputs()).sum().backward()
    assert set(made.values.grad.any(1).nonzero().flatten().tolist()) == set(
        slots.flatten().tolist()
    )


def test_low_precision_leaves_scores_exact():
    made = layer().float()
    x = inputs().float().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        low = made.lookup(x)
    exact = made.lookup(x.float())
    assert torch.equal(low.slots, exact.slots)
    assert torch.equal(low.weights, exact.weights)


@pytest.mark.parametrize(
    ("asked", "width", "queries"), [(None, 1024, 512), (None, 13, 12), (None, 1, 2), (64, 8, 64)]
)
def test_a_query_is_as_wide_as_the_model_unless_told(asked, width, queries):
    assert ProductKeysSettings(query_width=asked).queries_of(width) == queries


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sub_keys": 8, "neighbors": 9}, "neighbors 9 is more than sub_keys; 8 is the most"),
        ({"query_width": 7}, "query_width 7 has no halves of equal width; 8 has"),
        ({"value_lr": 0}, "greater than 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(changes, words):
    with pytest.raises(ValueError, match=words):
        ProductKeysSettings(**changes)


class TestBackboneOfIt(BackboneContract):
    """A backbone with it keeps the contract of every backbone."""

    @pytest.fixture(params=["transformer", "transformer-xl"])
    def backbone(self, request):
        return request.param

    @pytest.fixture(params=["batch", "layer"])
    def config(self, request, backbone):
        keys = {
            "name": "product-keys",
            "sub_keys": 5,
            "neighbors": 3,
            "query_norm": request.param,
            "layers": [1],
        }
        return parse_model({"backbone": backbone, "width": 8, "feed_forward": keys}).sized(30, 5)

    def test_it_stands_in_the_block_that_was_asked_for(self, model):
        assert [isinstance(block.ffn, ProductKeys) for block in model.backbone.blocks] == [
            True,
            False,
        ]


def test_the_model_is_made_of_its_file(tmp_path):
    config = parse_model(
        {"width": 8, "feed_forward": {"name": "product-keys", "sub_keys": 5, "neighbors": 3}}
    )
    net = LanguageModel(config.sized(30, 5))
    tokens = torch.arange(10).view(2, 5)
    net.train().encode(tokens)  # running means of the norm are part of the model
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(f'{{"model": {net.config.model_dump_json()}}}')
    again = load_model(tmp_path, "cpu")
    assert torch.equal(again.encode(tokens).hidden, net.eval().encode(tokens).hidden)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.data(), st.integers(0, 2**31), st.booleans())
def test_they_are_those_of_all_pairs(n, data, seed, ties):
    k = data.draw(st.integers(1, n))
    random = np.random.default_rng(seed)
    query, keys = random.standard_normal(6), random.standard_normal((2, n, 3))
    if ties:
        query, keys = query.round(), keys.round()
    wanted = all_scores(query, *keys)
    first, second = (
        torch.from_numpy(half @ part)
        for half, part in zip(keys, (query[:3], query[3:]), strict=True)
    )
    scores, slots = best_slots(first[None], second[None], k)
    best, _, _ = read(wanted, np.eye(n * n), k)
    np.testing.assert_allclose(
        scores[0], wanted[best], atol=1e-12
    )  # of slots that are level any may be taken
    np.testing.assert_allclose(wanted[slots[0]], scores[0], atol=1e-12)
    assert len(set(slots[0].tolist())) == k


def test_gradients_go_to_the_halves_of_what_was_found():
    first = torch.tensor([[1.0, 5.0, 0.0]], requires_grad=True)
    second = torch.tensor([[0.0, 2.0, 3.0]], requires_grad=True)
    scores, slots = best_slots(first, second, 2)
    assert slots.tolist() == [[1 * 3 + 2, 1 * 3 + 1]]
    scores.sum().backward()
    assert (first.grad.tolist(), second.grad.tolist()) == ([[0, 2, 0]], [[0, 1, 1]])
