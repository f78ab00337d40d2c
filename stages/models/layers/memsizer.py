"""MemSizer: linear attention over a few slots, in parallel, in chunks, or token by token."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.memory_settings import MemSizerSettings
from stages.models.layers.settings import AttentionConfig
from stages.models.layers.sublayer import RecurrentAttention

QUERY_GAIN = 32**-0.5
"""Gain of Xavier for the scores of slots, as the authors train language models; that of the other weights is 1."""


class Summed(NamedTuple):
    """The window so far: with the number of its positions, all that a position behind it reads."""

    values: Tensor
    """V_t = Σ_{j≤t} u_j w_jᵀ, [B, k, d]."""


def summed_reads(
    read: Float[Tensor, "b n k"],
    write: Float[Tensor, "b n k"],
    values: Float[Tensor, "b n d"],
    chunk: int,
    before: Float[Tensor, "b k d"] | None = None,
    place: int = 0,
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b k d"]]:
    """Compute t^-1/2 a_t^T V_t for positions t behind the first `place`, and the sums after them.

    A chunk as long as the window makes products of all pairs of positions; chunks of 1 are the recurrence. Others take
    time and memory linear in n: each reads the sums before it, and pairs within it. The numbers are the same.

    Args:
        read: a_t, the weights of slots.
        write, values: u_t and w_t.
        before: V of the first `place` positions; None: there are none.

    Two slots that are read alike: the first position writes 2 to one, the second 4 to the other.

    >>> half, one, two = torch.full((1, 2, 2), 0.5), torch.eye(2)[None], torch.tensor([[[2.0], [4.0]]])
    >>> summed_reads(half, one, two, chunk=2)[0].flatten()
    tensor([1.0000, 2.1213])

    Source: Zhang and Cai 2022 (arXiv:2203.12644), section 3, with the scale t^-1/2 of their code.
    """
    rows, length, slots = write.shape
    size = min(chunk, length)
    # Zeros behind the end write nothing, and what is read there is cut off again.
    a, u, w = (F.pad(part, (0, 0, 0, -length % size)).unflatten(1, (-1, size)) for part in (read, write, values))
    added = u.transpose(2, 3) @ w
    first = added.new_zeros(rows, 1, slots, w.shape[3]) if before is None else before[:, None]
    sums = torch.cat((first, added), 1).cumsum(1)
    made = ((a @ u.transpose(2, 3)).tril() @ w + a @ sums[:, :-1]).flatten(1, 2)[:, :length]
    places = torch.arange(place + 1, place + length + 1, dtype=made.dtype, device=made.device)
    return made * places.rsqrt()[:, None], sums[:, -1]


class MemSizer(RecurrentAttention[Summed]):
    """Reads slots by the mean of its heads' weights; each position adds its value to them, as much as it says.

    Heads share the slots' values, so the mean may be taken before these are read. There is no output projection.

    Source: Zhang and Cai 2022 (arXiv:2203.12644), section 3; biases, norms and scale as in their code.
    """

    def __init__(self, config: AttentionConfig, settings: MemSizerSettings) -> None:
        super().__init__()
        self.slots, self.chunk = settings.slots, settings.chunk
        self.query = nn.Linear(config.width, config.heads * settings.slots)
        self.write, self.value = nn.Linear(config.width, settings.slots), nn.Linear(config.width, config.width)
        self.write_norm, self.value_norm = nn.LayerNorm(settings.slots), nn.LayerNorm(config.width)
        self.dropout = Dropout(config.attention_dropout)

    def initialize(self, blocks: int) -> None:
        for linear, gain in ((self.query, QUERY_GAIN), (self.write, 1.0), (self.value, 1.0)):
            nn.init.xavier_uniform_(linear.weight, gain)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        return self.going_on(x, self.begin(x), 0)[0]

    def begin(self, x: Tensor) -> Summed:
        return Summed(x.new_zeros(len(x), self.slots, x.shape[2], dtype=self.query.weight.dtype))

    def going_on(self, x: Tensor, memory: Summed, place: int) -> tuple[Tensor, Summed]:
        """The same for the next n positions [B, n, d] of a window; one by one, each takes as long as the first."""
        with torch.autocast(x.device.type, enabled=False):  # sums of many terms would be lost in low precision
            x = x.to(self.query.weight.dtype)
            weights = self.weights(x)
            written = self.write_norm(self.write(x)), self.value_norm(self.value(x))
            read, values = summed_reads(weights.mean(2), *written, self.chunk, memory.values, place)
            return read, Summed(values)

    def weights(self, x: Tensor) -> Tensor:
        """[B, n, d] -> how much each head of a position reads of each slot, [B, n, heads, k]."""
        return self.dropout(self.query(x).unflatten(2, (-1, self.slots)).softmax(-1))
