"""What holds of attentions that remember under bf16."""

import torch

from stages.models.language_model import LanguageModel


def assert_low_precision_is_near(model: LanguageModel, stream: torch.Tensor) -> None:
    """Hidden states of a stream of inputs [B, L, d] are near those of float32, and what is carried is as exact.

    Of inputs in bf16, as an adaptive vocabulary embeds them, all but the cached inputs is.
    """
    exact = model.backbone(stream)
    for inputs, as_exact in ((stream, 0), (stream.bfloat16(), 1)):
        with torch.autocast("cpu", torch.bfloat16):
            low = model.backbone(inputs)
        assert float((low.hidden.float() - exact.hidden).detach().abs().median()) < 0.1
        assert [part.dtype for part in low.state][as_exact:] == [part.dtype for part in exact.state][as_exact:]
