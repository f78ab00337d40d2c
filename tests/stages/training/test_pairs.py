"""Training on pairs: which batches there are, what tokens weigh, resuming, smoothed labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.errors import DataError
from stages.examples.examples import Task
from stages.examples.pairs import Pairs
from stages.methods import METHODS
from stages.models.backbones.window_configs import EncoderDecoderConfig
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import make_vocabulary
from stages.training.batches import batches_by_tokens
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run
from tests.builders.pairs import made
from tests.builders.training import Crash, Notes, crash_at, outcome, settings

V = 200


def pairs(count: int = 60, seed: int = 0) -> Pairs:
    random = np.random.default_rng(seed)
    return made(random.integers(2, 9, count).tolist(), random.integers(2, 9, count).tolist())


def config(**changes: Any) -> TrainConfig:
    model = EncoderDecoderConfig(
        vocab_size=V, width=8, heads=2, ffn_width=16, layers=1, encoder_layers=1
    )
    defaults = {"model": model, "batch_tokens": 40, "label_smoothing": 0.1, "segment_length": 128}
    return settings(**{**defaults, **changes})


def trainer(folder: Path, at: Callable[[int], None] = lambda step: None, **changes: Any) -> Trainer:
    folder.mkdir(exist_ok=True)
    wanted = config(**changes)
    torch.manual_seed(wanted.seed)
    model, method = LanguageModel(wanted.model), METHODS.load("lm")(wanted.method_settings)
    model.label_smoothing = wanted.label_smoothing
    tasks, fabric = [Task("train", pairs())], make_fabric(torch.device("cpu"))
    return Trainer(
        Run(fabric, wanted, model, method, tasks, pairs(9, 1), folder, Notes(at=at), 0.0)
    )


def test_an_epoch_reads_every_pair_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    order = trainer(tmp_path).order._orders[0]
    count = order.batches_per_epoch
    epochs = [
        [order.of_batch(n).tolist() for n in range(e * count, (e + 1) * count)] for e in range(2)
    ]
    for epoch in epochs:
        assert sorted(i for batch in epoch for i in batch) == list(range(60))
    assert epochs[0] != epochs[1] and sorted(map(tuple, epochs[0])) == sorted(map(tuple, epochs[1]))


@pytest.mark.parametrize("step", [3, 7, 20])
def test_a_killed_run_ends_with_the_same_bytes(step: int, tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole")
    whole.train()
    with pytest.raises(Crash):
        trainer(tmp_path / "parts", crash_at(step)).train()
    again = trainer(tmp_path / "parts")
    again.train()
    assert outcome(tmp_path / "parts", again) == outcome(tmp_path / "whole", whole)


def test_all_tokens_of_an_update_weigh_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three batches of unequal numbers of tokens have the gradient of the mean over all of their
    tokens.
    """
    no_dropout = config().model.model_copy(update={"dropout": 0.0})
    made = trainer(
        tmp_path, accumulate=3, steps=1, clip_norm=0.0, model=no_dropout, label_smoothing=0.0
    )
    model, found = made.run.model.double(), dict[str, Tensor]()

    def keep() -> None:
        found.update({name: weight.grad.clone() for name, weight in model.named_parameters()})

    monkeypatch.setattr(made.updates, "change_weights", keep)
    reported = made.updates.make(0).loss.value()
    batches = [made.order._orders[0].of_batch(part) for part in range(3)]
    examples = made.run.tasks[0].examples
    assert len({int(examples.lengths[batch].sum()) for batch in batches}) > 1
    losses = []
    for batch in map(examples.batch, batches):
        read = model.read(batch)
        log_p = torch.log_softmax(read.hidden @ model.vocabulary.embedding.T, -1)
        losses.append(-log_p.gather(-1, batch.targets[..., None])[..., 0][batch.mask])
    mean = torch.cat(losses).mean()
    wanted = torch.autograd.grad(mean, list(model.parameters()))
    assert reported == pytest.approx(float(mean.detach()), rel=1e-6)
    for (name, weight), gradient in zip(model.named_parameters(), wanted, strict=True):
        torch.testing.assert_close(found[name], gradient.to(weight.dtype), rtol=1e-6, atol=1e-9)


def test_processes_share_a_batch_by_rows_and_weigh_by_tokens(tmp_path: Path) -> None:
    order = trainer(tmp_path, accumulate=2).order
    examples = order.tasks[0].examples
    whole = sum(examples.lengths[order._orders[0].of_batch(part)].sum() for part in range(2))
    weights = [order.batch(0, part, rank, 2).weight for part in range(2) for rank in range(2)]
    own = [
        examples.lengths[order.batch(0, part, rank, 2).indices].sum()
        for part in range(2)
        for rank in range(2)
    ]
    np.testing.assert_allclose(weights, [2 * tokens / whole for tokens in own])
    with pytest.raises(DataError, match=r"\b9\b"):
        batches_by_tokens(examples, 40, 0, ranks=9)


@pytest.mark.parametrize(
    "vocabulary", [{}, {"score_bias": True, "score_scale": 0.5}, {"tied": False}]
)
def test_smoothed_loss_is_the_dense_formula(vocabulary: dict[str, Any]) -> None:
    torch.manual_seed(0)
    made = make_vocabulary(
        EncoderDecoderConfig(vocab_size=9, width=4, heads=2, **vocabulary)
    ).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    hidden = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 8, 3, 3, 1])

    def dense(hidden: Tensor) -> Tensor:
        weight, scored = made._factors(hidden)[::-1]
        log_p = torch.log_softmax(scored @ weight.T, -1)
        own = log_p.gather(1, targets[:, None])[:, 0]
        return -(0.9 * own + 0.1 * log_p.mean(-1)).mean()

    found = made.loss(hidden, targets, 0.1)
    torch.testing.assert_close(found, dense(hidden), rtol=1e-12, atol=0)
    weights = [hidden, *made.parameters()]
    both = (
        torch.autograd.grad(loss, weights, allow_unused=True) for loss in (found, dense(hidden))
    )
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_validation_is_without_smoothing(tmp_path: Path) -> None:
    """A model in evaluation mode gives the plain loss."""
    model = trainer(tmp_path).run.model.eval()
    hidden, targets = torch.randn(3, 8), torch.tensor([1, 2, 3])
    plain = -model.log_prob(hidden, targets)[0].mean()
    torch.testing.assert_close(model.loss(hidden, targets), plain)
    assert float(model.train().loss(hidden, targets).detach()) != pytest.approx(
        float(plain), rel=1e-4
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "trime"},
        {
            "model": {
                "backbone": "transformer",
                "vocab_size": 20,
                "width": 8,
                "heads": 2,
                "cutoffs": (5,),
            }
        },
        {
            "model": {
                "backbone": "transformer",
                "vocab_size": 20,
                "width": 8,
                "heads": 2,
                "score_cap": 3.0,
            }
        },
    ],
)
def test_losses_that_cannot_be_smoothed_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="label_smoothing"):
        TrainConfig(label_smoothing=0.1, **changes)
