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
from stages.models.layers.sublayer import HasSeparateParameters, Lookup, SeparateParameters

EPSILON = 1e-6
"""Added to the mean square in the norms."""

MIN_SCORE = 1e-6
"""Smallest magnitude whose signed root is taken; that of a smaller score has no gradient."""

NO_TOKEN = -1
"""Token before the start of a stream or document; its term in a hash is 0."""


def hash_factors(types: int, order: int) -> tuple[int, ...]:
    """Odd factors for the tokens of an n-gram, that of the latest token first; times `types` they
    are below 2^63.

    >>> [factor % 2 for factor in hash_factors(types=10, order=3)]
    [1, 1, 1]
    """
    # Twice a number below this bound, plus 1, keeps every product in 64 bits.
    bound = (2**63 - 1) // max(1, types) // 2
    generator = np.random.default_rng(order)
    numbers = generator.integers(0, max(1, bound - 1), order)
    # Odd factors keep the low bits of a token apart: an even one would shift them out.
    return tuple(2 * int(number) + 1 for number in numbers)


def hash_ngrams(
    lagged_tokens: Sequence[Int64[Tensor, "*b"]], factors: Sequence[int]
) -> Int64[Tensor, "*b"]:
    """Hash of each n-gram, at least 0: the exclusive or over its tokens of (token + 1) times a
    factor.

    Args:
        lagged_tokens: tokens at each position, then one position earlier, and so on; -1 where there
        is none.
        factors: factor of each lag; products must stay below 2^63.

    (4 + 1) · 3 = 15 and (1 + 1) · 5 = 10 differ in the bits of 5:

    >>> hash_ngrams([torch.tensor([4]), torch.tensor([1])], (3, 5)).tolist()
    [5]

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372).
    """
    result = torch.zeros_like(lagged_tokens[0])
    for tokens, factor in zip(lagged_tokens, factors, strict=True):
        result = result ^ ((tokens + 1) * factor)
    return result


def shift_rows(
    rows: Tensor,
    lag: int,
    positions: int,
    document_offset: Int64[Tensor, "b n"] | None,
    padding: int = 0,
) -> Tensor:
    """Rows `lag` positions before each of the last n positions, [B, n, …].

    Args:
        rows: rows of these positions and of at least `lag` earlier ones, [B, m + n, …].
        lag: number of positions back.
        positions: n.
        document_offset: offset of each position within its document; None: one document.
        padding: value before the start of a document.

    >>> shift_rows(torch.tensor([[7, 8, 9]]), 1, 2, torch.tensor([[0, 1]]), -1).tolist()
    [[-1, 8]]
    """
    first = rows.shape[1] - positions - lag
    shifted = rows[:, first : first + positions]
    if document_offset is None or not lag:
        return shifted

    in_document = document_offset >= lag
    # A dimension of 1 for each dimension of a row, so that the mask broadcasts.
    trailing = [1] * (shifted.dim() - 2)
    return shifted.where(in_document.view(*in_document.shape, *trailing), padding)


def signed_root(scores: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Square root of each score's magnitude, with the sign of the score.

    >>> signed_root(torch.tensor([4.0, -4.0, 0.0]))
    tensor([ 2., -2.,  0.])
    """
    # The slope of a root is infinite at 0: the bound keeps gradients finite.
    return scores.abs().clamp_min(MIN_SCORE).sqrt() * scores.sign()


class RowsGate(nn.Module):
    """Gate α = σ(a), or σ(sign(a) √|a|), of a = norm(x)·norm(k) / √d.

    It measures how well looked-up rows fit the residual stream.

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372); the root is that of the
    authors' code.
    """

    def __init__(self, entries: int, width: int, form: str = "plain") -> None:
        """`entries`: numbers in the rows of a position; `form`: `plain`, or `signed-root`."""
        super().__init__()
        self.form = form
        self.key = nn.Linear(entries, width, bias=False)
        self.stream_norm = nn.RMSNorm(width, EPSILON)
        self.key_norm = nn.RMSNorm(width, EPSILON)

    def forward(
        self, x: Float[Tensor, "b n d"], rows: Float[Tensor, "b n e"]
    ) -> Float[Tensor, "b n"]:
        products = self.stream_norm(x) * self.key_norm(self.key(rows))
        scores = products.sum(-1) * x.shape[2] ** -0.5
        if self.form == "signed-root":
            scores = signed_root(scores)
        return scores.sigmoid()


class HashedNgrams(Lookup[NgramMemory], HasSeparateParameters):
    """Adds gated rows of the latest n-grams, and a causal convolution of them.

    Rows and convolution begin at zero. So the layer initially adds nothing, and n-grams that
    training never saw add nothing later.

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372); one branch, no
    merging of similar tokens.
    """

    def __init__(self, config: AttentionConfig, settings: HashedNgramsSettings) -> None:
        super().__init__()
        self.settings = settings

        # Factors of each order's hash, with the sizes of its tables.
        factors = [hash_factors(config.vocab_size or 0, order) for order in settings.orders]
        self.tables = list(zip(factors, settings.sizes, strict=True))

        num_tables = 0
        num_rows = 0
        for sizes in settings.sizes:
            num_tables += len(sizes)
            num_rows += sum(sizes)
        entries = num_tables * settings.entry_width

        # One tensor holds the rows of all tables, one table after the other.
        self.table = nn.Parameter(torch.empty(num_rows, settings.entry_width))
        self.gate = RowsGate(entries, config.width, settings.gate)
        self.value = nn.Linear(entries, config.width, bias=False)
        self.value_norm = nn.RMSNorm(config.width, EPSILON)
        self.taps = nn.Parameter(torch.empty(settings.kernel, config.width))
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
        # The table comes first again, because optimizers number parameters.
        self._parameters = {"table": table, **self._parameters}
        return self

    def separate_parameters(self) -> SeparateParameters:
        """The tables: few positions read each row, so a small or falling learning rate would not
        move it.
        """
        return SeparateParameters([self.table], self.settings.table_lr)

    def begin(self, x: Tensor) -> NgramMemory:
        tokens = torch.full((len(x), self.settings.before), NO_TOKEN, device=x.device)
        values = x.new_zeros(len(x), self.settings.reach, x.shape[2])
        return NgramMemory(tokens, values)

    def forward(
        self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None, memory: NgramMemory
    ) -> tuple[Tensor, NgramMemory]:
        """Residual stream [B, L, d] with what the n-grams of `tokens` [B, L] add, and the memory."""
        assert tokens is not None, "n-grams are made of tokens"
        num_positions = x.shape[1]
        # N-grams of the first positions begin in the passage before.
        all_tokens = torch.cat((memory.tokens, tokens), 1)

        # Rows learn by small steps, which the 8 bits of bfloat16 would lose.
        with torch.autocast(x.device.type, enabled=False):
            rows = self.read_rows(all_tokens, document_offset).to(x.device)
            gate = self.gate(x.to(rows.dtype), rows)
            gated = gate[..., None] * self.value(rows)

            normalized = self.value_norm(gated)
            values = torch.cat((memory.values.to(gated.dtype), normalized), 1)
            convolved = self.convolve(values, num_positions, document_offset)
            added = gated + F.silu(convolved)

        after = NgramMemory(all_tokens[:, num_positions:], values[:, num_positions:])
        return x + self.dropout(added).to(x.dtype), after

    def read_rows(
        self, tokens: Int64[Tensor, "b m"], document_offset: Int64[Tensor, "b n"] | None
    ) -> Float[Tensor, "b n e"]:
        """Rows for the n-grams that end at each position, next to each other; arguments are those
        of `slots`.
        """
        # Looked up on the table's device: only the rows are copied.
        slots = self.slots(tokens, document_offset).to(self.table.device)
        return F.embedding(slots, self.table, sparse=self.settings.on_host).flatten(2)

    def convolve(
        self,
        values: Float[Tensor, "b m d"],
        positions: int,
        document_offset: Int64[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b n d"]:
        """Causal depthwise convolution of the values, at the last `positions` positions."""
        # Taps as far apart as the longest n-gram is long: they read different n-grams.
        dilation = max(self.settings.orders)
        terms: list[Tensor] = []
        for tap, weight in enumerate(self.taps):
            lagged = shift_rows(values, tap * dilation, positions, document_offset)
            terms.append(lagged * weight)
        return torch.stack(terms).sum(0)

    def slots(
        self, tokens: Int64[Tensor, "b m"], document_offset: Int64[Tensor, "b n"] | None
    ) -> Int64[Tensor, "b n h"]:
        """Table rows for the n-grams that end at each position, one for each order and head.

        Args:
            tokens: tokens of the positions, after the earlier tokens that their n-grams include.
            document_offset: offset of each position within its document; None: one document.
        """
        positions = tokens.shape[1] - max(self.settings.orders) + 1
        lagged_tokens = [
            shift_rows(tokens, lag, positions, document_offset, NO_TOKEN)
            for lag in range(max(self.settings.orders))
        ]

        slots: list[Tensor] = []
        first_row = 0
        for factors, sizes in self.tables:
            hashes = hash_ngrams(lagged_tokens[: len(factors)], factors)
            for size in sizes:
                slots.append(first_row + hashes % size)
                first_row += size
        return torch.stack(slots, -1)
