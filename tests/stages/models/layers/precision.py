"""What holds of attentions that remember under bf16."""

import torch

from stages.models.language_model import LanguageModel


def assert_low_precision_is_near(model: LanguageModel, stream: torch.Tensor) -> None:
    """Hidden states of a stream of inputs [B, L, d] are near those of float32, and what is carried is as exact."""
    with torch.autocast("cpu", torch.bfloat16):
        low = model.backbone(stream)
    exact = model.backbone(stream)
    assert float((low.hidden.float() - exact.hidden).detach().abs().median()) < 0.1
    assert [part.dtype for part in low.state] == [part.dtype for part in exact.state]
