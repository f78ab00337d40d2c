"""TRIME with external memory on pairs (TRIME-MT): the loss of padded batches, against naive loops
in float64.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.errors import UsageError
from stages.examples.pairs import Pairs
from stages.methods.config import Batches
from stages.methods.method import BatchIndex, Carried
from stages.methods.settings import TrimeExtConfig
from stages.methods.trime import TrimeExt
from stages.models.backbones.window_configs import EncoderDecoderConfig
from stages.models.language_model import LanguageModel
from tests.builders.pairs import made

V = 8
LATE = BatchIndex(9, 9, 10, 0)


def small() -> tuple[LanguageModel, Pairs]:
    torch.manual_seed(0)
    config = EncoderDecoderConfig(
        vocab_size=V, width=8, heads=2, ffn_width=16, layers=1, encoder_layers=1, dropout=0.0
    )
    model = LanguageModel(config).double()
    pairs = made([3, 1, 5, 2], [2, 4, 1, 6])
    return model, Pairs(pairs.ids % 4, 0, pairs.offsets, pairs.source_ids % V, pairs.source_offsets)


def settings(model: LanguageModel, **changes: Any) -> TrimeExtConfig:
    return TrimeExtConfig(**changes).complete(model.config, Batches(4))


def naive(model: LanguageModel, pairs: Pairs, wanted: TrimeExtConfig, which: list[int]) -> Tensor:
    """-log p of each token by equation 5, sentence by sentence, with all scores at hand."""
    f, g, values, of = list[Tensor](), list[Tensor](), list[int](), list[int]()
    for i in which:
        a, b = pairs.documents[i : i + 2]
        tokens = torch.from_numpy(pairs.ids[a:b].astype(np.int64))
        source = torch.from_numpy(
            pairs.source_ids[slice(*pairs.sources[i : i + 2])].astype(np.int64)
        )
        read = model.encode(torch.cat((torch.tensor([0]), tokens[:-1]))[None], source=source[None])
        f += list(read.hidden[0])
        g += list(read.key("ffn-input")[0])
        values += tokens.tolist()
        of += [i] * len(tokens)
    losses = []
    for n in range(len(f)):
        cells = [
            (g[n] @ g[j] / (math.sqrt(8) * wanted.temperature), values[j])
            for j in range(len(f))
            if of[j] != of[n] or (wanted.local_dropout == 0 and j < n)
        ]
        cells = sorted(cells, key=lambda cell: -float(cell[0].detach()))[: wanted.k or None]
        scores = [float_score.exp() for float_score, _ in cells]
        vocabulary = (model.vocabulary.embedding @ f[n]).exp()
        total = vocabulary.sum() + sum(scores)
        hit = vocabulary[values[n]] + sum(
            s for s, (_, value) in zip(scores, cells, strict=True) if value == values[n]
        )
        losses.append(total.log() - hit.log())
    return torch.stack(losses)


@pytest.mark.parametrize(
    "changes", [{}, {"k": 3}, {"k": 0}, {"local_dropout": 0.0, "k": 0, "temperature": 1.0}]
)
def test_loss_and_gradients_of_a_padded_batch_are_those_of_loops(changes: dict[str, Any]) -> None:
    model, pairs = small()
    wanted = settings(model, **changes)
    method, which = TrimeExt(wanted), np.array([2, 0, 3, 1])
    loss = method.loss(model, method.batch(pairs, which, LATE), Carried()).mean
    slow = naive(model, pairs, wanted, which.tolist()).mean()
    torch.testing.assert_close(loss, slow, rtol=1e-9, atol=0)
    both = (torch.autograd.grad(one, list(model.parameters())) for one in (loss, slow))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)


def test_the_warm_up_is_the_plain_loss_of_the_tokens_that_count() -> None:
    model, pairs = small()
    method = TrimeExt(settings(model))
    batch = method.batch(pairs, np.array([1, 2]), BatchIndex(0, 0, 100, 0))
    loss = method.loss(model, batch, Carried()).mean
    read = model.read(batch)
    log_p = model.log_prob(batch.rows(read.hidden), batch.rows(batch.targets))[0]
    assert batch.plain and len(log_p) == 6
    torch.testing.assert_close(loss.detach(), -log_p.mean())


def test_settings_left_open_are_those_for_translation() -> None:
    model, _ = small()
    found = settings(model)
    assert (found.local_dropout, found.k, found.temperature, found.warmup, found.groups) == (
        1.0,
        8,
        10.0,
        0.1,
        1,
    )
    assert settings(model, k=0, temperature=2.0).k == 0
    with pytest.raises(UsageError, match=r"memory\.groups"):
        settings(model, groups=2)
    with pytest.raises(UsageError, match="torchrun"):
        TrimeExtConfig().complete(model.config, Batches(4, processes=2))
