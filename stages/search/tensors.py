"""Candidates on another device than the CPU, in PyTorch."""

import numpy as np
import torch
from torch import Tensor


class TensorCandidates:
    """Candidates of each query in one row of a tensor; see `stages.search.scan.Candidates`.

    Keys travel to the device list by list; products, selection and results so far stay there.
    """

    def __init__(self, queries: np.ndarray, size: int, device: str) -> None:
        self.queries = torch.from_numpy(queries).to(device)
        self.scores = torch.full((len(queries), size), torch.inf, device=device)
        self.names = torch.full((len(queries), size), -1, dtype=torch.int64, device=device)

    def scan(self, which: np.ndarray, keys: np.ndarray, names: np.ndarray, hidden: np.ndarray | None = None) -> None:
        queries, piece, named = (self._moved(array) for array in (which, keys, names))
        scores = self.queries[queries] @ piece.T
        if hidden is not None:
            columns, ranges = torch.arange(len(names), device=scores.device), self._moved(hidden)
            scores[(columns >= ranges[:, :1]) & (columns < ranges[:, 1:])] = torch.inf
        known = torch.cat((self.scores[queries], scores), dim=1)
        best, places = known.topk(self.scores.shape[1], dim=1, largest=False, sorted=True)
        everyone = torch.cat((self.names[queries], named.expand(len(queries), -1)), dim=1)
        self.scores[queries], self.names[queries] = best, everyone.gather(1, places)

    def _moved(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.queries.device)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        self.names[self.scores == torch.inf] = -1
        return self.scores.cpu().numpy(), self.names.cpu().numpy()
