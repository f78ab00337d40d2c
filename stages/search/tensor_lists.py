"""The lists of an IVF index on another device than the CPU, some lists at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.search.tensors import HeldKeys, TensorSearch, moved

if TYPE_CHECKING:
    from stages.search.decoded import DecodedLists

KEYS = 1 << 13
"""Keys that are compared at a time: a call costs a device as much as comparing thousands of queries with a few keys."""


class Piece(NamedTuple):
    """Keys that are compared together: of whole lists, or of a part of one that is long."""

    lists: range
    part: range | None

    def keys(self, lists: "DecodedLists") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows [m], keys [m, d], and of which list each is, counted from the first, [m]; no list is empty."""
        numbers = [number for number in self.lists if lists.sizes[number]]
        rows, keys = ([of(number, self.part) for number in numbers] for of in (lists.ids, lists.keys))
        owners = np.repeat(np.array(numbers) - self.lists.start, [len(some) for some in rows])
        return np.concatenate(rows), np.concatenate(keys), owners


def pieces(sizes: np.ndarray) -> Iterator[Piece]:
    """Lists of these sizes in pieces of at most KEYS keys; such as hold none are left out.

    >>> [tuple(piece) for piece in pieces(np.array([8000, 0, 100, 9000, 0]))]
    [(range(0, 3), None), (range(3, 4), range(0, 8192)), (range(3, 4), range(8192, 9000))]
    """
    start, held = 0, 0
    for number, size in enumerate([*sizes.tolist(), KEYS + 1]):
        if held + size > KEYS:
            if held:
                yield Piece(range(start, number), None)
            start, held = number, 0
        if size > KEYS and number < len(sizes):
            for first in range(0, size, KEYS):
                yield Piece(range(number, number + 1), range(first, min(first + KEYS, size)))
            start = number + 1
        else:
            held += size


class TensorLists:
    """Searches lists piece by piece: queries that probe one of its lists are compared with a piece at once."""

    def __init__(self, lists: "DecodedLists", device: str) -> None:
        self.lists, self.pieces, self._keys = lists, list(pieces(lists.sizes)), HeldKeys(device)

    def scan(self, found: TensorSearch, probed: np.ndarray, first: bool) -> None:
        """Compare queries with the keys of the lists that they probe.

        Args:
            probed: int64 [n, probe] numbers of lists; -1: none.
            first: as in `TensorSearch.scan`.
        """
        numbers = np.where(probed < 0, len(self.lists.sizes), probed).ravel()
        order = np.argsort(numbers.astype(np.uint16) if len(self.lists.sizes) < 1 << 16 else numbers, kind="stable")
        limits = np.searchsorted(numbers, np.arange(len(self.lists.sizes) + 1), sorter=order)
        queries, lists = moved(order // probed.shape[1], found.device), moved(numbers[order], found.device)
        for piece in self.pieces:
            pairs = slice(limits[piece.lists.start], limits[piece.lists.stop])
            if pairs.start < pairs.stop:
                keys = self._keys.get(piece) or self._keys.bring(piece, *piece.keys(self.lists))
                which, seen = _probing(queries[pairs], lists[pairs], piece.lists)
                found.scan(which, keys, first, None if seen is None else seen[:, keys.lists])


def _probing(queries: Tensor, lists: Tensor, of: range) -> tuple[Tensor, Tensor | None]:
    """Queries [q] that probe some lists, and which of them each does, bool [q, lists]; None: there is one alone.

    Args: a query and a list of each pair, [p].
    """
    if len(of) == 1:
        return queries, None
    which, places = queries.unique(return_inverse=True)
    seen = torch.zeros((len(which), len(of)), dtype=torch.bool, device=queries.device)
    seen[places, lists - of.start] = True
    return which, seen
