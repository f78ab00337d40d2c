"""Slots that remember: each attends to itself and to what was read, then is drawn to a bias and normalized."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.settings import BlockSizes


def slot_weights(
    queries: Float[Tensor, "B heads k d_head"],
    own_keys: Float[Tensor, "B heads k d_head"],
    keys: Float[Tensor, "B heads S d_head"],
    temperature: float,
) -> Float[Tensor, "B heads k 1+S"]:
    """softmax([q_i·k_i, q_i·K] / (sqrt(d_head) temperature)): slot i sees itself and what was read, no other slot.

    >>> one, two = torch.ones(1, 1, 1, 1), torch.tensor([0.0, 1.0]).view(1, 1, 2, 1)
    >>> slot_weights(one, one, two, 1.0).flatten()
    tensor([0.4223, 0.1554, 0.4223])
    """
    # Not a product of all slots with all: a slot that saw others would become like them.
    itself = (queries * own_keys).sum(3, keepdim=True)
    scores = torch.cat((itself, queries @ keys.transpose(2, 3)), 3)
    return (scores / (queries.shape[3] ** 0.5 * temperature)).softmax(3)


def biased_norm(slots: Float[Tensor, "*B k d"], bias: Float[Tensor, "k d"]) -> Float[Tensor, "*B k d"]:
    """(m_i + v_i) / |m_i + v_i|: a slot that is given nothing new moves to v_i / |v_i|, the sooner the longer v_i is.

    >>> biased_norm(torch.tensor([[[3.0, 3.0]]]), torch.tensor([[0.0, 1.0]]))
    tensor([[[0.6000, 0.8000]]])
    """
    return F.normalize(slots + bias, dim=-1)


class SlotWriter(nn.Module):
    """Writes what was read into slots.

    A slot keeps itself as it is, and takes projected rows. The biases are short, and no two alike: a long one forgets
    everything at once, and equal slots would stay equal for ever.

    Source: Wu et al. 2022 (Memformer, arXiv:2010.06891), section 3.3.
    """

    def __init__(self, config: BlockSizes, slots: int, temperature: float, forgetting: float) -> None:
        super().__init__()
        self.heads, self.temperature = config.heads, temperature
        self.query, self.key, self.value = (nn.Linear(config.width, config.width, bias=False) for _ in range(3))
        for linear in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(linear.weight)
        drawn = nn.init.normal_(torch.empty(slots, config.width))
        self.bias = nn.Parameter(F.normalize(drawn, dim=1) * forgetting)

    def begin(self, rows: int) -> Tensor:
        """The slots of new streams, [rows, k, d]."""
        return F.normalize(self.bias, dim=1).expand(rows, -1, -1)

    def weights(self, memory: Tensor, read: Tensor) -> Tensor:
        """Where slots [B, k, d] look: at themselves, then at rows [B, S, d]; [B, heads, k, 1 + S]."""
        keys = (self._by_head(self.key(memory)), self._by_head(self.key(read)))
        return slot_weights(self._by_head(self.query(memory)), *keys, self.temperature)

    def forward(self, memory: Tensor, read: Tensor) -> Tensor:
        """Slots [B, k, d] and rows that were read [B, S, d] -> slots, [B, k, d]."""
        with torch.autocast(memory.device.type, enabled=False):  # half precision would move slots that nothing moves
            read = read.to(memory.dtype)
            itself, others = self.weights(memory, read).tensor_split((1,), 3)
            mixed = itself * self._by_head(memory) + others @ self._by_head(self.value(read))
            return biased_norm(mixed.transpose(1, 2).flatten(2), self.bias)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)
