"""Candidates on another device than the CPU, in PyTorch."""

import numpy as np
import torch
from torch import Tensor

SCORES = 1 << 26
"""Scores computed and ranked at a time: 2 GB with their names."""


class TensorCandidates:
    """Candidates of each query in one row of a tensor: those of the smallest rough scores.

    Keys travel to the device list by list; products, selection and results so far stay there.
    """

    def __init__(self, queries: np.ndarray, size: int, device: str) -> None:
        self.queries = torch.from_numpy(queries).to(device)
        self.scores = torch.full((len(queries), size), torch.inf, device=device)
        self.names = torch.full((len(queries), size), -1, dtype=torch.int64, device=device)

    def scan(self, which: np.ndarray, keys: np.ndarray, names: np.ndarray, hidden: np.ndarray | None = None) -> None:
        piece, named = self._moved(keys), self._moved(names)
        step = max(1, SCORES // (len(names) + self.scores.shape[1]))
        for start in range(0, len(which), step):
            part = slice(start, start + step)
            self._offer(self._moved(which[part]), piece, named, None if hidden is None else self._moved(hidden[part]))

    def _offer(self, queries: Tensor, piece: Tensor, named: Tensor, hidden: Tensor | None) -> None:
        scores = self.queries[queries] @ piece.T
        if hidden is not None:
            columns = torch.arange(len(named), device=scores.device)
            scores[(columns >= hidden[:, :1]) & (columns < hidden[:, 1:])] = torch.inf
        known = torch.cat((self.scores[queries], scores), dim=1)
        best, places = known.topk(self.scores.shape[1], dim=1, largest=False, sorted=True)
        everyone = torch.cat((self.names[queries], named.expand(len(queries), -1)), dim=1)
        self.scores[queries], self.names[queries] = best, everyone.gather(1, places)

    def _moved(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.queries.device)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        self.names[self.scores == torch.inf] = -1
        return self.scores.cpu().numpy(), self.names.cpu().numpy()
