"""What holds of attentions that remember under bf16."""

import torch

from stages.models.backbone import Inputs
from stages.models.language_model import LanguageModel


def assert_low_precision_is_near(
    model: LanguageModel, stream: torch.Tensor, tokens: torch.Tensor | None = None
) -> None:
    """Hidden states of a stream of inputs [B, L, d] are near those of float32, and what is carried
    is as exact.

    `tokens`: the same stream, int64 [B, L].

    Of inputs in bf16, as an adaptive vocabulary embeds them, all but the cached inputs is.
    """
    exact = model.backbone(Inputs(stream, tokens=tokens))
    for inputs, inexact in ((stream, set()), (stream.bfloat16(), {"cached"})):
        with torch.autocast("cpu", torch.bfloat16):
            low = model.backbone(Inputs(inputs, tokens=tokens))
        assert float((low.hidden.float() - exact.hidden).detach().abs().median()) < 0.1
        assert {
            name for name, part in low.state.items() if part.dtype != exact.state[name].dtype
        } <= inexact
