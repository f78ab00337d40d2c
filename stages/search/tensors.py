"""Search on another device than the CPU, in PyTorch: keys that fit stay there, and so does what is found."""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.search.ranking import MISSING, NO_ROW
from stages.search.scan import ROUNDING, QueryBlock

SCORES = 1 << 26
"""Rough scores computed at a time: 256 MB."""
NUMBERS = 1 << 26
"""Numbers of keys, and as many of queries, that are compared pair by pair at a time: 256 MB each."""
PAIRS = 1 << 25
"""Pairs that are held until all but the best of each query are forgotten: 0.5 GB, or twice those that are asked for."""
HELD_SHARE = 0.5
"""Of what memory of a GPU is free: keys that stay may take so much."""
HELD_ELSEWHERE = 128 << 20
"""Bytes of keys that stay where no GPU tells what is free."""


class TensorKeys(NamedTuple):
    """Keys on a device: their rows, int64 [m], and the keys as they are stored, [m, d]."""

    rows: Tensor
    vectors: Tensor

    def between(self, start: int, stop: int) -> "TensorKeys":
        return TensorKeys(self.rows[start:stop], self.vectors[start:stop])

    @property
    def bytes(self) -> int:
        return self.rows.nbytes + self.vectors.nbytes


class HeldKeys:
    """Keys on a device, piece by piece; as many stay there for later searches as there is room for."""

    def __init__(self, device: str) -> None:
        self.device, self.room = device, HELD_ELSEWHERE
        if torch.device(device).type == "cuda":
            self.room = int(HELD_SHARE * torch.cuda.mem_get_info(device)[0])
        self._held: dict[Hashable, TensorKeys] = {}

    def get(self, piece: Hashable) -> TensorKeys | None:
        return self._held.get(piece)

    def bring(self, piece: Hashable, rows: np.ndarray, vectors: np.ndarray) -> TensorKeys:
        """Take keys, rows [m] and [m, d], to the device."""
        keys = TensorKeys(moved(rows, self.device), moved(vectors, self.device))
        if keys.bytes <= self.room:
            self.room -= keys.bytes
            self._held[piece] = keys
        return keys


def moved(array: np.ndarray, device: str) -> Tensor:
    """An array on a device; no part of it is shared."""
    return torch.from_numpy(np.array(array)).to(device)


class TensorSearch:
    """The k best of a block of queries while keys pass, as `exact.Narrowing` has them on the CPU.

    Pairs whose rough score lies within the bound of their query are compared again without cancellation, and held;
    bounds become narrower as better rows are found.
    """

    def __init__(self, queries: QueryBlock, origin: np.ndarray, k: int, device: str) -> None:
        self.k, self.depth, self.device = k, queries.depth(k), device
        self.l2, self.hides = queries.metric == "l2", queries.hides
        self.vectors, self.extended = moved(queries.vectors, device), moved(queries.extended, device)
        self.constant, self.origin = moved(queries.constant, device), moved(origin, device)
        self.exclude = None if queries.exclude is None else moved(queries.exclude, device)
        if not self.l2:
            self.lengths, self.far = moved(queries.lengths, device), float(queries.far)
        self.bounds = torch.full((len(queries),), torch.inf, device=device)
        self._radius = torch.zeros((), device=device)
        self._owners: list[Tensor] = []
        self._pairs: list[Tensor] = []
        self._held, self._most = 0, max(PAIRS, 2 * k * len(queries))

    def scan(self, which: Tensor, keys: TensorKeys, first: bool = False) -> None:
        """Compare queries `which`, int64 [q] without repetition, with keys.

        Args:
            first: little is known yet of these queries: their bounds are those of these keys, if that is less.
        """
        centred = keys.vectors.float() - self.origin
        squares = centred.square().sum(dim=1, keepdim=True)
        extended, radius = torch.cat((centred, squares), dim=1), squares.max().sqrt()
        self._radius = torch.maximum(self._radius, radius)
        for part in which.split(max(1, SCORES // len(extended))):
            rough = self._rough(part, keys.rows, extended)
            if first and self.depth <= len(extended):
                kth = self._reach(rough.kthvalue(self.depth, dim=1).values, part, radius)
                self.bounds[part] = torch.minimum(self.bounds[part], kth)
            near = rough <= self._allowed(part, radius)[:, None]
            if self.hides:
                near &= rough < torch.inf
            self._hold(part, keys, near)

    def narrow(self) -> None:
        """Forget all but the k best of each query, which are then in order."""
        if not self._held:
            return
        owners, pairs = torch.cat(self._owners), torch.cat(self._pairs)
        pairs, order = pairs.sort()
        owners, order = owners[order].sort(stable=True)
        pairs, places = pairs[order], self._places(owners)
        best = places < self.k
        self._owners, self._pairs = [owners[best]], [pairs[best]]
        self._held = len(self._pairs[0])
        last = places == self.k - 1
        kth, which = _scores(pairs[last]), owners[last]
        bounds = self._reach(kth - self.constant[which], which, self._radius)
        self.bounds[which] = torch.minimum(self.bounds[which], bounds)

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores float32 and rows int64 [n, k] of the best of each query, best first; +inf and -1 where missing."""
        self.narrow()
        table = torch.full((len(self.bounds), self.k), MISSING, device=self.device)
        for owners, pairs in zip(self._owners, self._pairs, strict=True):
            table[owners, self._places(owners)] = pairs
        rows = table & NO_ROW
        return _scores(table).cpu().numpy(), rows.masked_fill_(rows == NO_ROW, -1).cpu().numpy()

    def _rough(self, which: Tensor, rows: Tensor, extended: Tensor) -> Tensor:
        """Rough scores [q, m], +inf where long ranges of rows are not to be seen."""
        scores = self.extended[which] @ extended.T
        if self.hides and self.exclude is not None:
            hidden = self.exclude[which]
            scores.masked_fill_((rows >= hidden[:, :1]) & (rows < hidden[:, 1:]), torch.inf)
        return scores

    def _hold(self, which: Tensor, keys: TensorKeys, near: Tensor) -> None:
        """Add the pairs of `which` and keys that `near`, bool [q, m], has."""
        owners, places = near.nonzero(as_tuple=True)
        owners, rows = which[owners], keys.rows[places]
        scores = self._scores(owners, keys.vectors, places)
        if self.exclude is not None and not self.hides:
            hidden = self.exclude[owners]
            scores.masked_fill_((rows >= hidden[:, 0]) & (rows < hidden[:, 1]), torch.inf)
        self._owners.append(owners)
        self._pairs.append(_packed(scores, rows))
        self._held += len(owners)
        if self._held > self._most:
            self.narrow()

    def _scores(self, owners: Tensor, vectors: Tensor, places: Tensor) -> Tensor:
        """Scores of pairs as `pair_scores` has them: squared distances come from differences."""
        out = torch.empty(len(owners), device=self.device)
        step = max(1, NUMBERS // vectors.shape[1])
        for start in range(0, len(owners), step):
            part = slice(start, start + step)
            queries, keys = self.vectors[owners[part]], vectors[places[part]].float()
            out[part] = queries.sub_(keys).square_().sum(dim=1) if self.l2 else -queries.mul_(keys).sum(dim=1)
        return out

    def _places(self, owners: Tensor) -> Tensor:
        """The how manieth of its owner each pair is, of pairs [h] in the order of their owners."""
        counts = torch.bincount(owners, minlength=len(self.bounds))
        return torch.arange(len(owners), device=self.device) - (counts.cumsum(0) - counts)[owners]

    # Bounds, as `QueryBlock` has them

    def _magnitude(self, which: Tensor, radius: Tensor) -> Tensor:
        return self.constant[which] if self.l2 else self.lengths[which] * (radius + self.far)

    def _reach(self, rough: Tensor, which: Tensor, radius: Tensor) -> Tensor:
        return rough + 2 * ROUNDING * (self._magnitude(which, radius) + rough.abs())

    def _allowed(self, which: Tensor, radius: Tensor) -> Tensor:
        return self.bounds[which] if self.l2 else self.bounds[which] + 2 * ROUNDING * self._magnitude(which, radius)


def _packed(scores: Tensor, rows: Tensor) -> Tensor:
    """What `ranking.packed` makes."""
    bits = (scores + 0.0).view(torch.int32)
    both = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32 | rows
    return both.masked_fill_(scores == torch.inf, MISSING)


def _scores(pairs: Tensor) -> Tensor:
    """Scores of what `_packed` made."""
    bits = (pairs >> 32).int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)
