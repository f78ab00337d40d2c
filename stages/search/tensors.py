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
KEPT, SPARE = 4, 128
"""Pairs that a query holds before all but its best are forgotten: so many times k, and as many more."""
HELD_SHARE = 0.5
"""Of what memory of a GPU is free: keys that stay may take so much."""
HELD_ELSEWHERE = 128 << 20
"""Bytes of keys that stay where no GPU tells what is free."""


class TensorKeys(NamedTuple):
    """Keys on a device: their rows, int64 [m], and the keys as they are stored, [m, d]."""

    rows: Tensor
    vectors: Tensor
    lists: Tensor | None = None
    """Of an index: of which list of several each key is, [m]."""

    def between(self, start: int, stop: int) -> "TensorKeys":
        return TensorKeys(self.rows[start:stop], self.vectors[start:stop])

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self if tensor is not None)


class HeldKeys:
    """Keys on a device, piece by piece; as many stay there for later searches as there is room for."""

    def __init__(self, device: str) -> None:
        self.device, self.room = device, HELD_ELSEWHERE
        if torch.device(device).type == "cuda":
            self.room = int(HELD_SHARE * torch.cuda.mem_get_info(device)[0])
        self._held: dict[Hashable, TensorKeys] = {}

    def get(self, piece: Hashable) -> TensorKeys | None:
        return self._held.get(piece)

    def bring(self, piece: Hashable, *arrays: np.ndarray) -> TensorKeys:
        """Take keys to the device, by the arrays that `TensorKeys` has."""
        keys = TensorKeys(*(moved(array, self.device) for array in arrays))
        if keys.bytes <= self.room:
            self.room -= keys.bytes
            self._held[piece] = keys
        return keys


def moved(array: np.ndarray, device: str) -> Tensor:
    """An array on a device; no part of it is shared."""
    return torch.from_numpy(np.array(array)).to(device)


def fetched(tensor: Tensor) -> np.ndarray:
    """A tensor in memory; a GPU writes several times as fast to pages that cannot move."""
    if tensor.device.type != "cuda":
        return tensor.numpy()
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor).numpy()


class TensorSearch:
    """The k best of a block of queries while keys pass, as `exact.Narrowing` has them on the CPU.

    Pairs whose rough score lies within the bound of their query are compared again without cancellation, and held in
    a table, a row for each query; bounds become narrower as better rows are found.
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
        self._pairs = torch.full((len(queries), KEPT * k + SPARE), MISSING, device=device)
        self._filled = torch.zeros(len(queries), dtype=torch.int64, device=device)

    def scan(self, which: Tensor, keys: TensorKeys, first: bool = False, seen: Tensor | None = None) -> None:
        """Compare queries with keys.

        Args:
            which: int64 [q], without repetition.
            keys: [m, d].
            first: little is known yet of these queries: their bounds are those of these keys, if that is less.
            seen: bool [q, m], the keys that each of them sees; None: all.
        """
        centred = keys.vectors.float() - self.origin
        squares = centred.square().sum(dim=1, keepdim=True)
        extended, radius = torch.cat((centred, squares), dim=1), squares.max().sqrt()
        self._radius = torch.maximum(self._radius, radius)
        step = max(1, SCORES // len(extended))
        for start in range(0, len(which), step):
            part = which[start : start + step]
            rough = self._rough(part, keys.rows, extended, None if seen is None else seen[start : start + step])
            if first and self.depth <= len(extended):
                kth = self._reach(rough.kthvalue(self.depth, dim=1).values, part, radius)
                self.bounds[part] = torch.minimum(self.bounds[part], kth)
            self._offer(part, keys, rough, radius)

    def narrow(self) -> None:
        """Forget all but the k best of each query."""
        best = self._pairs.topk(self.k, dim=1, largest=False, sorted=False).values
        self._pairs[:, : self.k], self._pairs[:, self.k :] = best, MISSING
        self._filled.fill_(self.k)
        everyone, kth = slice(None), _scores(best.amax(dim=1))
        bounds = self._reach(kth - self.constant, everyone, self._radius)
        self.bounds = torch.minimum(self.bounds, bounds)

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores float32 and rows int64 [n, k] of the best of each query, best first; +inf and -1 where missing."""
        best = self._pairs.topk(self.k, dim=1, largest=False, sorted=True).values
        rows = best & NO_ROW
        return fetched(_scores(best)), fetched(rows.masked_fill_(rows == NO_ROW, -1))

    def _rough(self, which: Tensor, rows: Tensor, extended: Tensor, seen: Tensor | None) -> Tensor:
        """Rough scores [q, m], +inf of keys that are not seen, and where long ranges of rows are not to be."""
        scores = self.extended[which] @ extended.T
        if seen is not None:
            scores.masked_fill_(~seen, torch.inf)
        if self.hides and self.exclude is not None:
            hidden = self.exclude[which]
            scores.masked_fill_((rows >= hidden[:, :1]) & (rows < hidden[:, 1:]), torch.inf)
        return scores

    def _offer(self, which: Tensor, keys: TensorKeys, rough: Tensor, radius: Tensor) -> None:
        """Hold the pairs of rough scores [q, m] within the bounds; where they are too many, some keys at a time."""
        near = (rough <= self._allowed(which, radius)[:, None]) & (rough < torch.inf)
        counts, width = near.sum(dim=1), self._pairs.shape[1]
        if int((self._filled[which] + counts).max()) <= width:
            self._hold(which, keys, near, counts)
            return
        self.narrow()
        near = rough <= self._allowed(which, radius)[:, None]
        room = width - self.k
        if int(near.sum(dim=1).max()) > room:
            for start in range(0, len(keys.rows), room):
                part = slice(start, start + room)
                self._offer(which, keys.between(start, start + room), rough[:, part], radius)
        else:
            self._offer(which, keys, rough, radius)

    def _hold(self, which: Tensor, keys: TensorKeys, near: Tensor, counts: Tensor) -> None:
        """Add the pairs of `which` and keys that `near`, bool [q, m], has, `counts` [q] of each query."""
        owners, places = near.nonzero(as_tuple=True)
        columns = torch.arange(len(owners), device=self.device)
        columns += (self._filled[which] + counts - counts.cumsum(0))[owners]
        owners, rows = which[owners], keys.rows[places]
        scores = self._scores(owners, keys.vectors, places)
        if self.exclude is not None and not self.hides:
            hidden = self.exclude[owners]
            scores.masked_fill_((rows >= hidden[:, 0]) & (rows < hidden[:, 1]), torch.inf)
        self._pairs[owners, columns] = _packed(scores, rows)
        self._filled[which] += counts

    def _scores(self, owners: Tensor, vectors: Tensor, places: Tensor) -> Tensor:
        """Scores of pairs as `pair_scores` has them: squared distances come from differences."""
        out = torch.empty(len(owners), device=self.device)
        step = max(1, NUMBERS // vectors.shape[1])
        for start in range(0, len(owners), step):
            part = slice(start, start + step)
            queries, keys = self.vectors[owners[part]], vectors[places[part]].float()
            out[part] = queries.sub_(keys).square_().sum(dim=1) if self.l2 else -queries.mul_(keys).sum(dim=1)
        return out

    # Bounds, as `QueryBlock` has them

    def _magnitude(self, which: Tensor | slice, radius: Tensor) -> Tensor:
        return self.constant[which] if self.l2 else self.lengths[which] * (radius + self.far)

    def _reach(self, rough: Tensor, which: Tensor | slice, radius: Tensor) -> Tensor:
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
