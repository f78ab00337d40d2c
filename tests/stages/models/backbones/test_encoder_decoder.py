"""The encoder-decoder: its equations, padding, decoding token by token, and its size."""

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.errors import UsageError
from stages.models.backbones.window_configs import EncoderDecoderConfig
from stages.models.language_model import LanguageModel, new_model, parameter_count
from tests.oracles import encoder_decoder as oracle

V, D, EOS = 17, 8, 0
SOURCES = [[3, 4, 5, 6, EOS], [7, EOS], [8, 9, EOS]]
INPUTS = [[EOS, 5], [EOS, 6, 7, 8, 9], [EOS]]


def model(**changes: object) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": V,
        "width": D,
        "layers": 2,
        "encoder_layers": 3,
        "heads": 2,
        "ffn_width": 12,
    }
    made = LanguageModel(EncoderDecoderConfig(**{**sizes, **changes})).double().eval()
    for parameter in made.parameters():  # biases and norms begin where an error could hide
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def rows(sentences: list[list[int]], filler: int = 11) -> tuple[Tensor, Tensor]:
    longest = max(map(len, sentences))
    ids = torch.tensor([one + [filler] * (longest - len(one)) for one in sentences])
    return ids, torch.tensor(
        [[True] * len(one) + [False] * (longest - len(one)) for one in sentences]
    )


@torch.no_grad()
def test_hidden_states_and_keys_are_those_of_the_equations() -> None:
    """To the digits of float32, in which sinusoids are computed."""
    net = model()
    source, mask = rows(SOURCES)
    read = net.encode(rows(INPUTS)[0], source=source, source_mask=mask)
    for row, (own, inputs) in enumerate(zip(SOURCES, INPUTS, strict=True)):
        f, g = oracle.decode(
            oracle.weights_of(net), inputs, own, encoder_layers=3, layers=2, heads=2
        )
        np.testing.assert_allclose(read.hidden[row, : len(inputs)].numpy(), f, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            read.key("ffn-input")[row, : len(inputs)].numpy(), g, rtol=1e-5, atol=1e-6
        )
        log_p = oracle.log_probs(oracle.weights_of(net), f)
        np.testing.assert_allclose(
            net.log_probs(read.hidden[row, : len(inputs)]).numpy(), log_p, rtol=1e-5
        )
    assert read.state is None  # training keeps no state


def test_padding_changes_neither_loss_nor_gradients() -> None:
    """A pair alone, and with longer ones, whatever tokens fill the rows."""
    net, inputs, targets = model(), torch.tensor([[EOS, 5, 6]]), torch.tensor([5, 6, EOS])

    def gradients(
        source: Tensor, mask: Tensor | None, target: Tensor
    ) -> tuple[float, list[Tensor]]:
        net.zero_grad()
        loss = net.loss(net.encode(target, source=source, source_mask=mask).hidden[0, :3], targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), [
            parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None
        ]

    loss, alone = gradients(torch.tensor([SOURCES[2]]), None, inputs)
    for filler in (EOS, 13):
        source, mask = rows([SOURCES[2], [1, 2, 3, 4, 5, 6, 7, 8, 9, EOS]], filler)
        padded = torch.cat((inputs, torch.full((1, 7), filler)), 1)
        other, beside = gradients(source, mask, padded.expand(2, -1))
        assert other == pytest.approx(loss, rel=1e-12)
        for one, two in zip(alone, beside, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


def test_the_size_of_the_papers_model() -> None:
    """6 + 6 layers of 512 and 1,024 with 4 heads: 31.5 million without embeddings (Zhong et al.
    2022, appendix D).
    """
    sizes = {"width": 512, "layers": 6, "encoder_layers": 6, "heads": 4, "ffn_width": 1024}
    small = parameter_count(EncoderDecoderConfig(vocab_size=1, **sizes)) - 512
    assert round(small / 1e5) == 315


def test_what_it_does_not_take_is_refused() -> None:
    net = model()
    with pytest.raises(UsageError):
        net.encode(torch.tensor([[EOS]]))
    with pytest.raises(UsageError):
        new_model(V, 4, width=8, heads=2).begin(torch.tensor([[EOS]]))
    for wrong in ({"cutoffs": (5,)}, {"width": 9, "heads": 3}):
        with pytest.raises(ValueError, match=r"cutoffs|even"):
            EncoderDecoderConfig(vocab_size=V, **wrong)
