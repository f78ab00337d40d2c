"""MemSizer: linear attention through a few slots, computed in parallel, in chunks, or token by
token.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.memory_settings import MemSizerSettings
from stages.models.layers.settings import AttentionConfig
from stages.models.layers.sublayer import ContinuedAttention

QUERY_GAIN = 32**-0.5
"""Xavier gain for the scores of slots, as in the authors' language models; for other weights it is
1.
"""


class Summed(NamedTuple):
    """Sums over the window so far, which are all that later positions need besides its length."""

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
    """Compute t^-1/2 a_t^T V_t for the n positions t after the first `place`, and the sums after
    them.

    The result does not depend on the chunk. A chunk as long as the window computes all pairs of
    positions; chunks of 1 are the recurrence. In between, a chunk reads the sums before it, and the
    pairs within it. Time and memory are then linear in n.

    Args:
        read: a_t, the weights of slots.
        write, values: u_t and w_t.
        chunk: number of positions in a chunk.
        before: V of the first `place` positions; None: there are none.
        place: number of earlier positions.

    Two slots are read with equal weights. The first position writes 2 to one, the second writes 4
    to the other:

    >>> half, one, two = torch.full((1, 2, 2), 0.5), torch.eye(2)[None], torch.tensor([[[2.0], [4.0]]])
    >>> summed_reads(half, one, two, chunk=2)[0].flatten()
    tensor([1.0000, 2.1213])

    Source: Zhang and Cai 2022 (arXiv:2203.12644), section 3, with the scale t^-1/2 of their code.
    """
    num_rows, length, slots = write.shape
    size = min(chunk, length)
    # Zeros after the end write nothing, and outputs there are cut off.
    padding = (0, 0, 0, -length % size)
    a = _chunks(F.pad(read, padding), size)  # [b, chunks, size, k]
    u = _chunks(F.pad(write, padding), size)  # [b, chunks, size, k]
    w = _chunks(F.pad(values, padding), size)  # [b, chunks, size, d]

    # V before each chunk, and after the last: [b, chunks + 1, k, d]
    chunk_sums = u.transpose(2, 3) @ w
    if before is None:
        before = chunk_sums.new_zeros(num_rows, slots, w.shape[3])
    sums = torch.cat((before[:, None], chunk_sums), 1).cumsum(1)

    # What a position reads of its own chunk, up to itself, and of the chunks before.
    weights = (a @ u.transpose(2, 3)).tril()
    reads = weights @ w + a @ sums[:, :-1]
    reads = reads.flatten(1, 2)[:, :length]

    t = torch.arange(place + 1, place + length + 1, dtype=reads.dtype, device=reads.device)
    return reads * t.rsqrt()[:, None], sums[:, -1]


def _chunks(x: Tensor, size: int) -> Tensor:
    """Cut positions into chunks: [b, n, e] -> [b, chunks, size, e]."""
    return x.unflatten(1, (-1, size))


class MemSizer(ContinuedAttention[Summed]):
    """Attention through slots: each position adds its weighted value to them, and reads them by the
    mean of its heads. Its memory has a fixed size, so every position takes the same time.

    Heads share the values of slots, so their weights can be averaged before reading. There is no
    output projection.

    Source: Zhang and Cai 2022 (arXiv:2203.12644), section 3; biases, norms and scale as in their
    code.
    """

    def __init__(self, config: AttentionConfig, settings: MemSizerSettings) -> None:
        super().__init__()
        self.slots = settings.slots
        self.chunk = settings.chunk
        self.query = nn.Linear(config.width, config.heads * settings.slots)
        self.write = nn.Linear(config.width, settings.slots)
        self.value = nn.Linear(config.width, config.width)
        self.write_norm = nn.LayerNorm(settings.slots)
        self.value_norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.attention_dropout)

    def initialize(self, blocks: int) -> None:
        for linear, gain in ((self.query, QUERY_GAIN), (self.write, 1.0), (self.value, 1.0)):
            nn.init.xavier_uniform_(linear.weight, gain)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        return self.continue_window(x, self.begin(x), 0)[0]

    def begin(self, x: Tensor) -> Summed:
        return Summed(x.new_zeros(len(x), self.slots, x.shape[2], dtype=self.query.weight.dtype))

    def continue_window(self, x: Tensor, memory: Summed, place: int) -> tuple[Tensor, Summed]:
        """Outputs for the next n positions [B, n, d] of a window, and the memory; each position
        takes the same time.
        """
        # Low precision would lose digits of long sums.
        with torch.autocast(x.device.type, enabled=False):
            exact = x.to(self.query.weight.dtype)
            # Heads share the values of slots, so their weights are averaged before reading.
            read = self.weights(exact).mean(2)
            write = self.write_norm(self.write(exact))
            values = self.value_norm(self.value(exact))
            result, sums = summed_reads(read, write, values, self.chunk, memory.values, place)
        return result, Summed(sums)

    def weights(self, x: Tensor) -> Tensor:
        """[B, n, d] -> weights of slots for each head of a position, [B, n, heads, k]."""
        return self.dropout(self.query(x).unflatten(2, (-1, self.slots)).softmax(-1))
