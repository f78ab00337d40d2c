"""Attention over keys and values that are given: a sequence's own up to here, or another's."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.models.backbone import named_below
from stages.models.layers.settings import BlockSizes


class Heads(NamedTuple):
    """Keys and values that attention reads, [B, heads, S, d_head] each."""

    keys: Tensor
    values: Tensor

    def after(self, before: "Heads | None") -> "Heads":
        """The same behind those of earlier positions."""
        return self if before is None else Heads(*(torch.cat(both, 2) for both in zip(before, self, strict=True)))

    def named(self, name: str) -> dict[str, Tensor]:
        """Tensors of a state, under the name of a layer."""
        return {f"{name}.keys": self.keys, f"{name}.values": self.values}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], name: str) -> "Heads | None":
        """Those of a layer in a state; None: it has none yet."""
        found = named_below(tensors, f"{name}.")
        return cls(found["keys"], found["values"]) if found else None


class Attention(nn.Module):
    """Attention over keys and values that are given, its own or those of another sequence."""

    def __init__(self, config: BlockSizes) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query = nn.Linear(config.width, config.width)
        self.read = nn.Linear(config.width, 2 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def of(self, x: Float[Tensor, "B S d"]) -> Heads:
        """Keys and values of positions [B, S, d]."""
        keys, values = self.read(x).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return Heads(keys.transpose(1, 2), values.transpose(1, 2))

    def forward(
        self, x: Float[Tensor, "B L d"], read: Heads, mask: Bool[Tensor, "..."] | None = None, causal: bool = False
    ) -> Float[Tensor, "B L d"]:
        """[B, L, d] -> [B, L, d].

        Args:
            mask: keys that each position may read, bool, broadcast to [B, heads, L, S]; None: all.
            causal: whether position i reads keys up to i alone, instead of a mask.
        """
        queries = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(queries, *read, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        attended: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return attended


def lower(length: int, total: int, device: torch.device) -> Tensor:
    """Keys that each of the last positions may read, bool [length, total]: all up to its own."""
    return torch.ones(length, total, dtype=torch.bool, device=device).tril(total - length)
