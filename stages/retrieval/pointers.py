"""Neighbours by pointers: once a token is read, the rows behind those neighbours that hold it are the next ones.

A search is made where too few are left. A text is cut into streams of STREAM tokens, each of which begins with a
search, and they are read side by side: so searches are made together.

Source: Alon et al. 2022 (RetoMaton, arXiv:2201.12431), without clusters: a row points to the row behind it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, Integer

from stages.retrieval.neighbors import Datastore, FoundNeighbors, IndexSearch
from stages.search.distances import exact_order

STREAM = 128
"""Tokens of a stream."""


@dataclass(frozen=True)
class PointerSearch:
    """Follows pointers where at least `fewest` are left, else searches; `tokens` reads a range of a split's ids."""

    search: IndexSearch
    datastore: Datastore
    tokens: Callable[[str, int, int], np.ndarray]
    fewest: int
    needs_keys = True

    def find(
        self, split: str, start: int, stop: int, keys: np.ndarray | None, rows: np.ndarray | None = None
    ) -> FoundNeighbors:
        assert keys is not None and rows is None, "no gate says which tokens are searched for"
        tokens, values = self.tokens(split, start, stop), self.datastore.values[:-1].cpu().numpy()
        forbidden = self.search.forbidden(split, start, stop)
        found = FoundNeighbors.none(stop - start, self.search.k, self.datastore.metric)
        searched = np.zeros(stop - start, bool)
        for step in range(STREAM):
            at = np.arange((step - start) % STREAM, stop - start, STREAM)
            ahead = followed(found.ids[at - 1], tokens[at - 1], values)
            ahead[(at == 0) | (step == 0)] = -1
            if forbidden is not None:
                ahead[(ahead >= forbidden[at, :1]) & (ahead < forbidden[at, 1:])] = -1
            searched[at] = (ahead >= 0).sum(1) < self.fewest
            found.ids[at], asked = ahead, at[searched[at]]
            found.ids[asked], found.distances[asked] = self.search.at(keys, asked, forbidden)
        nearest = exact_order(
            self.datastore.keys, keys[~searched], found.ids[~searched], self.datastore.metric, self.search.k
        )
        found.ids[~searched], found.distances[~searched] = nearest
        return FoundNeighbors(found.ids, found.distances, searches=int(searched.sum()))


def followed(
    rows: Integer[np.ndarray, "n k"], tokens: Integer[np.ndarray, " n"], values: Integer[np.ndarray, " N"]
) -> Int64[np.ndarray, "n k"]:
    """The rows behind those that hold the token of each position, in their order, then -1.

    Args:
        rows: retrieved at each position, -1 where missing. values: the token of every row.

    >>> followed(np.array([[3, 0, 2]]), np.array([7]), np.array([7, 8, 9, 7, 5])).tolist()
    [[4, 1, -1]]
    """
    holds = (rows >= 0) & (values[rows] == tokens[:, None]) & (rows + 1 < len(values))
    ahead = np.where(holds, rows + 1, -1)
    return np.take_along_axis(ahead, np.argsort(~holds, axis=1, kind="stable"), 1)
