"""Factors beside an imported model's weights, and the model that comes out of them."""

import builtins
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from stages.artifacts.stage import Inputs
from stages.errors import UsageError
from stages.methods import METHODS
from stages.methods.method import Carried, Loss, ParameterGroup
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import LanguageModel, evaluating, new_model
from stages.pretrained.location import locate
from stages.pretrained.model import describe
from stages.training.config import TrainConfig
from stages.training.loop import Objective
from stages.training.low_rank import (
    add_factors,
    added_numbers,
    factors_alone,
    own_parameters,
    whole_weights,
)
from stages.training.sizes import checkpoint_bytes, training_bytes
from tests.stages.methods.stream.updates import stream
from tests.stages.pretrained.tiny import FAMILIES, saved, stored_and_loaded

pytest.importorskip("peft")
RANK = 3


def imported(folder, family):
    saved(folder, family)
    location = locate(str(folder))
    return stored_and_loaded(location, describe(location, None))


def fill(model):
    """Factors as after some learning: B is no longer 0."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(torch.randn_like(weight) * 0.1)


@pytest.fixture
def llama(tmp_path):
    return imported(tmp_path, "llama")


TOKENS = torch.arange(12).reshape(2, 6)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"mamba", "mamba2", "jamba"}))
def test_what_is_written_computes_what_the_factors_did(tmp_path, family):
    model = imported(tmp_path, family)
    before, names = model.encode(TOKENS).hidden, set(model.state_dict())
    size = own_parameters(model)
    add_factors(model, RANK)
    torch.testing.assert_close(model.encode(TOKENS).hidden, before)
    fill(model)
    weights, wanted = whole_weights(model), model.encode(TOKENS).hidden
    assert set(weights) == names and own_parameters(model) == size
    assert (wanted - before).abs().max() > 1e-3
    plain = LanguageModel(model.config)
    plain.load_state_dict(weights)
    torch.testing.assert_close(plain.eval().encode(TOKENS).hidden, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("feed_forward", ["dense", "product-keys"])
def test_a_model_that_began_here_has_factors_too(feed_forward):
    """Every matrix has a gradient through them, and what is written computes what they did."""
    sizes = {
        "layers": 2,
        "width": 16,
        "heads": 2,
        "ffn_width": 16,
        "feed_forward": {"name": feed_forward},
    }
    model = new_model(20, 6, backbone="transformer", **sizes).eval()
    before, expected = model.encode(TOKENS).hidden, added_numbers(model, RANK)
    add_factors(model, RANK)
    fill(model)
    wanted = model.encode(TOKENS).hidden
    wanted.square().sum().backward()
    factors = [weight for name, weight in model.named_parameters() if "lora_" in name]
    assert sum(one.numel() for one in factors) == expected and all(
        one.grad is not None for one in factors
    )
    assert (wanted - before).abs().max() > 1e-3
    plain = LanguageModel(model.config)
    plain.load_state_dict(whole_weights(model))
    torch.testing.assert_close(plain.eval().encode(TOKENS).hidden, wanted, rtol=1e-4, atol=1e-5)


def test_a_matrix_becomes_w_and_two_b_a(llama):
    name = "backbone.model.layers.1.mlp.up_proj"
    w = llama.state_dict()[f"{name}.weight"].numpy().astype(np.float64)
    add_factors(llama, RANK)
    fill(llama)
    a, b = (llama.state_dict()[f"{name}.lora_{one}.default.weight"].numpy() for one in "AB")
    assert (a.shape, b.shape) == ((RANK, w.shape[1]), (w.shape[0], RANK))
    wanted = w + 2 * b.astype(np.float64) @ a.astype(np.float64)
    np.testing.assert_allclose(
        whole_weights(llama)[f"{name}.weight"].numpy(), wanted, rtol=1e-5, atol=1e-6
    )


def test_the_factors_alone_learn_and_are_counted_before_they_are_made(llama):
    expected = added_numbers(llama, RANK)
    add_factors(llama, RANK)
    (group,) = factors_alone([ParameterGroup(list(llama.parameters()))], llama)
    assert sum(one.numel() for one in group.parameters) == expected
    shapes = {RANK}
    assert all(shapes & set(one.shape) for one in group.parameters)


def test_a_method_that_leaves_the_model_alone_is_refused(llama):
    add_factors(llama, RANK)
    with pytest.raises(UsageError, match="--lora"):
        factors_alone([ParameterGroup([])], llama)


def test_a_frozen_copy_beside_the_model_is_no_part_of_what_learns(llama):
    method = METHODS.load("anml-er")(METHODS.settings("anml-er")())
    model = LanguageModel(llama.config.model_copy(update={"head": method.settings.head(4)}))
    copy = {f"frozen.{name}": weight for name, weight in llama.state_dict().items()}
    model.load_state_dict(model.state_dict() | llama.state_dict() | copy)
    add_factors(model, RANK)
    (group,) = factors_alone(method.parameter_groups(model), model)
    learnt = {id(weight) for weight in group.parameters}
    names = {name for name, weight in model.named_parameters() if id(weight) in learnt}
    assert names and all("lora_" in name or name.startswith("head.") for name in names)
    method.begin_stream(model, stream(), 0)
    for name, weight in model.frozen.state_dict().items():
        assert torch.equal(weight, llama.state_dict()[name])


def test_memory_and_checkpoints_are_those_of_what_learns(llama):
    parameters, added = own_parameters(llama), added_numbers(llama, RANK)
    settings = {"segment_length": 8, "model": llama.config}
    whole, factors = TrainConfig(**settings), TrainConfig(**settings, lora=RANK)
    freed = training_bytes(whole, llama.config, 1) - training_bytes(factors, llama.config, 1)
    assert freed == 12 * parameters - 16 * added
    tokens = SimpleNamespace(metrics={"splits": {"train": {"tokens": 100}}})
    inputs = Inputs({"tokens": cast(Any, tokens)})
    assert checkpoint_bytes(factors, inputs, 4 * parameters) == 4 * parameters + 12 * added
    assert checkpoint_bytes(whole, inputs, 4 * parameters) == 12 * parameters


def test_factors_beside_a_matrix_that_no_layer_multiplies_with_leave_it_as_it_is(tmp_path):
    """Jamba reads W of one layer itself: B there has no gradient, and stays 0."""
    model = imported(tmp_path, "jamba")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    add_factors(model, RANK)
    model.encode(TOKENS).hidden.sum().backward()
    idle = {
        name
        for name, weight in model.named_parameters()
        if "lora_B" in name and weight.grad is None
    }
    assert idle and all("dt_proj" in name for name in idle)
    assert torch.equal(
        whole_weights(model)[name := "backbone.model.layers.0.mamba.dt_proj.weight"], before[name]
    )


@pytest.mark.parametrize("family", ["mamba", "mamba2"])
def test_a_family_without_factors_is_refused(tmp_path, family):
    with pytest.raises(UsageError, match="--lora"):
        add_factors(imported(tmp_path, family), RANK)


def test_the_package_is_named_where_it_is_missing(llama, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name == "peft":
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'memlm\[hf\]'"):
        add_factors(llama, RANK)


class TwoAccesses:
    """A method whose loss first reads rows without gradients, as a teacher does, and then twice
    with them.
    """

    def loss(self, model, batch, carried):
        with torch.no_grad():
            assert not model.vocabulary.embedding.requires_grad
        self.seen = [model.vocabulary.embedding for _ in range(2)]
        return Loss(sum(one.square().sum() for one in self.seen), carried)


def test_rows_of_added_tokens_are_joined_once_where_no_gradients_flow():
    config = new_model(
        20, 6, backbone="transformer", layers=1, width=16, heads=2, ffn_width=16
    ).config
    head = LanguageSettings(answers=((3,),), first=16, learns_rows=True)
    model, method = LanguageModel(config.model_copy(update={"head": head})), TwoAccesses()
    add_factors(model, RANK)
    new = model.vocabulary.parametrizations.embedding.original1
    for share in (1.0, 2.0):
        torch.nn.init.constant_(new, share)
        loss = Objective(model, method, torch.device("cpu"), "fp32")(None, Carried()).mean
        loss.backward()
        torch.testing.assert_close(new.grad, torch.full_like(new, 4 * share))
        new.grad = None
    with torch.no_grad(), evaluating(model):
        assert model.vocabulary.embedding is model.vocabulary.embedding
    assert model.vocabulary.embedding is not model.vocabulary.embedding
    with evaluating(model):  # with gradients weights may change
        before = model.vocabulary.embedding
        torch.nn.init.constant_(new, 3.0)
        assert not torch.equal(model.vocabulary.embedding, before)


@pytest.mark.parametrize("more", [{}, {"tied": False, "score_bias": True}])
def test_rows_of_added_tokens_learn_beside_the_factors_and_all_others_stay(more):
    sizes = {"layers": 1, "width": 16, "heads": 2, "ffn_width": 16, **more}
    config = new_model(20, 6, backbone="transformer", **sizes).config
    model = LanguageModel(
        config.model_copy(
            update={"head": LanguageSettings(answers=((3,),), first=16, learns_rows=True)}
        )
    )
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    expected, size = added_numbers(model, RANK), own_parameters(model)
    add_factors(model, RANK)
    (group,) = factors_alone([ParameterGroup(list(model.parameters()))], model)
    assert (sum(one.numel() for one in group.parameters), own_parameters(model)) == (expected, size)
    hidden = model.encode(TOKENS).hidden.flatten(0, 1)
    model.loss(hidden, torch.full((12,), 17)).backward()
    torch.optim.AdamW(group.parameters, 0.1, weight_decay=0.5).step()
    after = whole_weights(model)
    assert after.keys() == before.keys()
    changed = {name for name, weight in before.items() if name.startswith("vocabulary.")}
    assert len(changed) == (3 if more else 1)
    for name in changed:
        assert torch.equal(after[name][:16], before[name][:16]) and not torch.equal(
            after[name][16:], before[name][16:]
        )
    plain = LanguageModel(model.config)
    plain.load_state_dict(after)
    torch.testing.assert_close(
        plain.eval().encode(TOKENS).hidden, model.eval().encode(TOKENS).hidden
    )
