"""Hashed n-grams: learned rows for the latest tokens, added to the residual stream through a gate."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.memory_settings import HashedNgramsSettings, NgramMemory
from stages.models.layers.settings import AttentionConfig
from stages.models.layers.sublayer import Apart, LearnsApart, Lookup

EPSILON = 1e-6
"""Added to the mean square in the norms."""


def multipliers(types: int, order: int) -> tuple[int, ...]:
    """Odd factors for the tokens of an n-gram, that of the latest token first; times `types` they
    are below 2^63.

    >>> [factor % 2 for factor in multipliers(types=10, order=3)]
    [1, 1, 1]
    """
    most = (2**63 - 1) // max(1, types) // 2
    return tuple(
        2 * int(n) + 1 for n in np.random.default_rng(order).integers(0, max(1, most - 1), order)
    )


def hashed(lagged: Sequence[Int64[Tensor, "*b"]], factors: Sequence[int]) -> Int64[Tensor, "*b"]:
    """Hash of each n-gram, at least 0: the exclusive or over its tokens of (token + 1) times a
    factor.

    Args:
        lagged: tokens at each position, then one position earlier, and so on; -1 where there is
        none.
        factors: factor of each lag; products must stay below 2^63.

    (4 + 1) · 3 = 15 and (1 + 1) · 5 = 10 differ in the bits of 5:

    >>> hashed([torch.tensor([4]), torch.tensor([1])], (3, 5)).tolist()
    [5]

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372), as public reimplementations have it.
    """
    mixed = torch.zeros_like(lagged[0])
    for tokens, factor in zip(lagged, factors, strict=True):
        mixed = mixed ^ ((tokens + 1) * factor)
    return mixed


def delayed(
    told: Tensor,
    lag: int,
    number: int,
    document_offset: Int64[Tensor, "b n"] | None,
    nothing: int = 0,
) -> Tensor:
    """Rows `lag` positions before each of the last `number` positions, [B, n, …].

    Args:
        told: rows of these positions and of at least `lag` earlier ones, [B, m + n, …].
        lag: number of positions back.
        number: n.
        document_offset: offset of each position within its document; None: one document.
        nothing: value before the start of a document.

    >>> delayed(torch.tensor([[7, 8, 9]]), 1, 2, torch.tensor([[0, 1]]), -1).tolist()
    [[-1, 8]]
    """
    first = told.shape[1] - number - lag
    before = told[:, first : first + number]
    if document_offset is None or not lag:
        return before
    own = (document_offset >= lag).view(*document_offset.shape, *(1 for _ in before.shape[2:]))
    return before.where(own, nothing)


class RowsGate(nn.Module):
    """Gate α = σ(norm(x)·norm(k) / √d), which measures how well looked-up rows fit the residual
    stream.
    """

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(entries, width, bias=False)
        self.stream_norm, self.key_norm = (nn.RMSNorm(width, EPSILON) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "b n d"], rows: Float[Tensor, "b n e"]
    ) -> Float[Tensor, "b n"]:
        agreement = (self.stream_norm(x) * self.key_norm(self.key(rows))).sum(-1)
        return (agreement * x.shape[2] ** -0.5).sigmoid()


class HashedNgrams(Lookup[NgramMemory], LearnsApart):
    """Adds gated rows of the latest n-grams, and a causal convolution of them.

    Rows and convolution begin at zero. So the layer initially adds nothing, and n-grams that
    training never saw add nothing later.

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372), as in `hashed`; one branch, no merging of
    similar tokens.
    """

    def __init__(self, config: AttentionConfig, settings: HashedNgramsSettings) -> None:
        super().__init__()
        self.settings, width = settings, config.width
        factors = [multipliers(config.vocab_size or 0, order) for order in settings.orders]
        self.tables = list(zip(factors, settings.sizes, strict=True))
        sizes = [size for of_order in settings.sizes for size in of_order]
        self.table = nn.Parameter(torch.empty(sum(sizes), settings.entry_width))
        self.gate = RowsGate(len(sizes) * settings.entry_width, width)
        self.value = nn.Linear(len(sizes) * settings.entry_width, width, bias=False)
        self.value_norm = nn.RMSNorm(width, EPSILON)
        self.taps = nn.Parameter(torch.empty(settings.kernel, width))
        self.dropout = Dropout(config.dropout)

    def initialize(self, blocks: int) -> None:
        nn.init.zeros_(self.table)
        nn.init.zeros_(self.taps)
        for linear in (self.gate.key, self.value):
            nn.init.xavier_uniform_(linear.weight)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "HashedNgrams":
        """Move all tensors except a table that stays on the host: it may be larger than the
        device's memory.
        """
        if not self.settings.on_host:
            return super()._apply(fn, recurse)
        table = self._parameters.pop("table")
        super()._apply(fn, recurse)
        self._parameters = {
            "table": table,
            **self._parameters,
        }  # first again: optimizers number parameters
        return self

    def apart(self) -> Apart:
        """The tables: few positions read each row, so a small or falling learning rate would not
        move it.
        """
        return Apart([self.table], self.settings.table_lr)

    def begin(self, x: Tensor) -> NgramMemory:
        tokens = torch.full((len(x), self.settings.before), -1, device=x.device)
        return NgramMemory(tokens, x.new_zeros(len(x), self.settings.reach, x.shape[2]))

    def forward(
        self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None, memory: NgramMemory
    ) -> tuple[Tensor, NgramMemory]:
        assert tokens is not None, "n-grams are made of tokens"
        said = torch.cat((memory.tokens, tokens), 1)
        with torch.autocast(x.device.type, enabled=False):
            slots = self.slots(said, document_offset).to(self.table.device)
            # Looked up on the table's device: only the rows are copied.
            rows = (
                F.embedding(slots, self.table, sparse=self.settings.on_host).to(x.device).flatten(2)
            )
            gated = self.gate(x.to(rows.dtype), rows)[..., None] * self.value(rows)
            values = torch.cat((memory.values.to(gated.dtype), self.value_norm(gated)), 1)
            apart = max(self.settings.orders)  # taps of the depthwise causal convolution
            lagged = (
                delayed(values, tap * apart, x.shape[1], document_offset)
                for tap in range(len(self.taps))
            )
            convolved = torch.stack(
                [of_tap * weight for of_tap, weight in zip(lagged, self.taps, strict=True)]
            ).sum(0)
            found = gated + F.silu(convolved)
        after = NgramMemory(said[:, x.shape[1] :], values[:, x.shape[1] :])
        return x + self.dropout(found).to(x.dtype), after

    def slots(
        self, said: Int64[Tensor, "b m"], document_offset: Int64[Tensor, "b n"] | None
    ) -> Int64[Tensor, "b n h"]:
        """Table rows for the n-grams that end at each position, one for each order and head.

        Args:
            said: tokens of the positions, after the earlier tokens that their n-grams include.
            document_offset: offset of each position within its document; None: one document.
        """
        number = said.shape[1] - self.settings.before
        lagged = [
            delayed(said, lag, number, document_offset, -1)
            for lag in range(max(self.settings.orders))
        ]
        rows, first = [], 0
        for factors, sizes in self.tables:
            mixed = hashed(lagged[: len(factors)], factors)
            for size in sizes:
                rows.append(mixed % size + first)
                first += size
        return torch.stack(rows, -1)
