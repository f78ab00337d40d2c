"""The vector of a text, from hidden states of an encoder, as sentence-transformers makes it."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.models.backbones.window_configs import (
    DenseLayer,
    NormalizeLayer,
    PoolingMode,
    TextEncoderConfig,
    VectorLayer,
)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda vectors: vectors,
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
}


def pooled_texts(
    hidden: Float[Tensor, "B L d"], mask: Bool[Tensor, "B L"], mode: PoolingMode
) -> Float[Tensor, "B d"]:
    """Pool hidden states over the positions in the mask; padding is at the end.

    Sums are divided in the order of sentence-transformers, so that results are the same bits.

    Source: mean pooling as in Reimers and Gurevych 2019 (Sentence-BERT, arXiv:1908.10084),
    section 3; a mean weighted by position as in Muennighoff 2022 (SGPT, arXiv:2202.08904).

    >>> hidden = torch.tensor([[[3.0], [9.0], [7.0]]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> [pooled_texts(hidden, mask, mode).item() for mode in ("cls", "max", "mean", "lasttoken")]
    [3.0, 9.0, 6.0, 9.0]
    >>> pooled_texts(hidden, mask, "weightedmean").item()  # (1 · 3 + 2 · 9) / (1 + 2)
    7.0
    """
    counted = mask[..., None].to(hidden.dtype)
    match mode:
        case "cls":
            return hidden[:, 0]
        case "max":
            return hidden.masked_fill(counted == 0, -torch.inf).amax(1)
        case "mean":
            return (hidden * counted).sum(1) / counted.sum(1)
        case "mean_sqrt_len_tokens":
            return (hidden * counted).sum(1) / counted.sum(1).sqrt()
        case "weightedmean":
            places = torch.arange(1, hidden.shape[1] + 1, device=hidden.device, dtype=hidden.dtype)
            weights = counted * places[:, None]
            return (hidden * weights).sum(1) / weights.sum(1)
        case "lasttoken":
            rows = torch.arange(len(hidden), device=hidden.device)
            return hidden[rows, mask.sum(1) - 1]


class Dense(nn.Module):
    """Linear layer with an activation, which nothing trains: its weights are buffers."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, width: int, settings: DenseLayer) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(settings.width, width))
        self.register_buffer("bias", torch.empty(settings.width) if settings.bias else None)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, vectors: Float[Tensor, "B d"]) -> Float[Tensor, "B k"]:
        return self.activation(F.linear(vectors, self.weight, self.bias))


class Normalize(nn.Module):
    """Scaling of vectors to length 1."""

    def __init__(self, width: int, settings: NormalizeLayer | None = None) -> None:
        super().__init__()

    def forward(self, vectors: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
        return F.normalize(vectors, dim=-1)


class SentenceVector(nn.Module):
    """Pooling and the layers behind it; weights are undefined until loaded."""

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.modes = config.pooling_modes
        width = config.width * len(self.modes)
        layers: list[nn.Module] = []
        for settings in config.vector_layers:
            layers.append(_layer(width, settings))
            width = settings.width_after(width)
        if config.normalize:
            layers.append(Normalize(width))
        self.layers = nn.Sequential(*layers)

    def forward(
        self, hidden: Float[Tensor, "B L d"], mask: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B k"]:
        pooled = [pooled_texts(hidden, mask, mode) for mode in self.modes]
        vectors: Tensor = self.layers(torch.cat(pooled, -1))
        return vectors


def _layer(width: int, settings: VectorLayer) -> nn.Module:
    if isinstance(settings, DenseLayer):
        return Dense(width, settings)
    return Normalize(width, settings)
