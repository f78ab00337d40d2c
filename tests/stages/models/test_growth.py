"""Growth: a wider model gives every token the same probability; a deeper one has each block again,
in order.
"""

import pytest
import torch

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.models.config import parse_model
from stages.models.growth import grown, grown_config
from stages.models.language_model import LanguageModel
from stages.train import Train
from stages.training.config import TrainConfig
from tests.stages.small_store import small_tokens

SIZES = {"layers": 2, "width": 8, "heads": 2, "ffn_width": 12, "dropout": 0.0}


def small(**more: object) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(parse_model({**SIZES, **more}).sized(11, 6)).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model


def larger(model: LanguageModel, wider: int, deeper: int, noise: float) -> LanguageModel:
    made = LanguageModel(grown_config(model.config, wider, deeper)).double().eval()
    made.load_state_dict(grown(model.state_dict(), model.config, wider, deeper, noise, 0))
    return made


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("wider", [2, 3])
def test_a_wider_model_is_the_same_function(wider: int, bias: bool, tied: bool) -> None:
    model = small(tied=tied, score_bias=bias)
    tokens = torch.randint(11, (3, 6))
    before, after = (
        one.log_probs(one.encode(tokens).hidden) for one in (model, larger(model, wider, 1, 0.0))
    )
    torch.testing.assert_close(after, before, rtol=1e-11, atol=1e-12)
    noisy = larger(model, wider, 1, 0.01)
    changed = noisy.log_probs(noisy.encode(tokens).hidden)
    assert not torch.allclose(changed, before) and (changed.exp() - before.exp()).abs().max() < 0.2


def test_copies_of_a_unit_do_not_learn_alike_with_noise() -> None:
    model, tokens = small(), torch.randint(11, (3, 6))
    for noise, alike in ((0.0, True), (0.01, False)):
        made = larger(model, 2, 1, noise)
        made.loss(made.encode(tokens).hidden.flatten(0, 1), tokens.flatten()).backward()
        first, second = made.backbone.blocks[0].ffn.up.weight.grad.chunk(2)
        assert torch.allclose(first, second) == alike


def test_each_block_is_there_again_behind_itself() -> None:
    model = small()
    made = larger(model, 1, 2, 0.0)
    assert len(made.backbone.blocks) == 4
    for number, block in enumerate(made.backbone.blocks):
        assert torch.equal(block.ffn.up.weight, model.backbone.blocks[number // 2].ffn.up.weight)


@pytest.mark.parametrize(
    "other", [{"positions": "sinusoidal"}, {"feed_forward": {"name": "product-keys"}}]
)
def test_a_model_that_does_not_grow_is_refused(other: dict) -> None:
    with pytest.raises(UsageError, match="leave them out"):
        grown_config(parse_model({**SIZES, **other}).sized(11, 6), 2, 1)


def test_a_grown_model_begins_where_the_smaller_one_was(store: Store) -> None:
    tokens = small_tokens(store)
    common = {"segment_length": 8, "batch_tokens": 32, "seed": 1}
    config = TrainConfig.model_validate(
        common | {"model": SIZES, "steps": 40, "optimizer": {"lr": 0.01}}
    )
    first = make(Train(), config, {"source": tokens.reference}, store, Execution()).artifact
    config = TrainConfig.model_validate(
        common | {"wider": 2, "steps": 1, "optimizer": {"lr": 1e-9}}
    )
    references = {"source": tokens.reference, "init_from": first.reference}
    made = make(Train(), config, references, store, Execution()).artifact
    assert made.config["model"]["width"] == 16 and made.config["model"]["heads"] == 4
    assert made.metrics["valid_loss"] == pytest.approx(first.metrics["valid_loss"], abs=0.05)
    with pytest.raises(UsageError, match="--init-from"):
        make(Train(), config, {"source": tokens.reference}, store, Execution())
