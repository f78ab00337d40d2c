"""All keys compared with queries on another device than the CPU; keys that fit stay there."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stages.search.keys import StoredKeys
from stages.search.tensor_search import TensorQueries
from stages.search.tensors import TensorKeys, memory_budget, moved, smallest


class KeysOnDevice:
    """The keys of a datastore on a device; those of the first shards stay there, as far as there is room."""

    def __init__(self, keys: StoredKeys, device: str) -> None:
        self.keys, self.device, self.budget = keys, device, memory_budget(device)
        self._staying = min(
            keys.shards, self.budget.held // (keys.rows_per_shard * (keys.dim * keys.dtype.itemsize + 8))
        )
        self._held: TensorKeys | None = None

    def __iter__(self) -> Iterator[TensorKeys]:
        """All keys, as many at a time as one product takes."""
        if self._staying and self._held is None:
            self._held = self._brought(self._staying)
        step, others = max(1, self.budget.piece // self.keys.dim), range(self._staying, self.keys.shards)
        if self._held is not None:
            yield from _cut(self._held, step)
        for first, block in self.keys.each(others):
            yield from _cut(TensorKeys(self._rows(first, len(block)), moved(block, self.device)), step)

    def _brought(self, shards: int) -> TensorKeys:
        """The keys of the first shards."""
        rows, vectors = self.keys.bounds(shards - 1)[1], None
        for first, block in self.keys.each(range(shards)):
            part = moved(block, self.device)
            if vectors is None:
                vectors = torch.empty((rows, self.keys.dim), dtype=part.dtype, device=self.device)
            vectors[first : first + len(part)] = part
        assert vectors is not None
        return TensorKeys(self._rows(0, rows), vectors)

    def _rows(self, first: int, count: int) -> Tensor:
        return torch.arange(first, first + count, device=self.device)


def _cut(keys: TensorKeys, step: int) -> Iterator[TensorKeys]:
    return (keys.between(start, start + step) for start in range(0, len(keys.rows), step))


class WithAll:
    """Every query beside each of these keys: a `Comparison`."""

    def __init__(self, queries: TensorQueries, keys: TensorKeys, scores: int) -> None:
        self.keys, self.step, self._queries = keys, max(1, scores // len(keys.rows)), queries
        self._centred = keys.vectors.float() - queries.origin
        self.radius = self._centred.square().sum(dim=1).amax().sqrt()
        self._bias = queries.bias(self._centred)

    def nearest(self, which: slice, count: int) -> tuple[Tensor, Tensor]:
        rough = torch.addmm(self._bias, self._queries.factors[which], self._centred.T)
        hidden = self._queries.hidden(which, self.keys.rows) if self._queries.hides else None
        return smallest(rough if hidden is None else rough.masked_fill_(hidden, torch.inf), count)
