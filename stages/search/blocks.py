"""Keys of several lists in one block, ready to be compared, so that threads make few and long calls of NumPy."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from stages.search.decoded import DecodedLists
from stages.search.keys import widen
from stages.search.scan import KeyBlock, Room, extend

PIECE_BYTES = 8 << 20
"""Keys of a list, in float32, that a thread compares at a time; it holds them three times."""


class ListBlocks:
    """Makes blocks of the keys of an index, as they are compared.

    Those of the first lists are kept, as far as there is room, since each list is compared twice for a block of
    queries.

    Attributes:
        kept: lists of which keys are kept.
        piece: keys that are compared at a time; longer lists come in parts.
        parts: [lists] parts of each list, int64.
    """

    def __init__(self, lists: DecodedLists, origin: np.ndarray, kept_bytes: int) -> None:
        self.lists, self.origin, self._dim = lists, origin, len(origin)
        self.piece = max(1, PIECE_BYTES // (4 * self._dim))
        self.parts = np.maximum(1, -(-lists.sizes // self.piece))
        key_bytes = 8 + 4 * (2 * self._dim + 1)
        self.kept = int(np.searchsorted(lists.starts * key_bytes, kept_bytes, side="right")) - 1
        self._is_read = np.zeros(self.kept, bool)

    @cached_property
    def _keys(self) -> KeyBlock:
        return _empty(int(self.lists.starts[self.kept]), self._dim, None)

    def together(self, numbers: Sequence[int], room: Room) -> tuple[KeyBlock, list[slice]]:
        """The keys of some lists, rising and either all kept or none, in one block, and which are those of each."""
        if numbers[-1] < self.kept:
            return self._kept(numbers)
        ends = np.cumsum(self.lists.sizes[list(numbers)]).tolist()
        block, places = _empty(ends[-1], self._dim, room), list(map(slice, [0, *ends[:-1]], ends))
        np.concatenate([self.lists.ids(number) for number in numbers], out=block.rows)
        keys = [self.lists.keys(number) for number in numbers]
        widen(np.concatenate(keys, out=room.array("keys", block.vectors.shape, keys[0].dtype)), block.vectors)
        extend(block.vectors, self.origin, block.extended)
        return block, places

    def in_parts(self, number: int, room: Room) -> Iterator[KeyBlock]:
        """The keys of a long list, some at a time."""
        size = int(self.lists.sizes[number])
        for start in range(0, size, self.piece):
            part = range(start, min(start + self.piece, size))
            block = _empty(len(part), self._dim, room)
            self._read(number, part, block)
            extend(block.vectors, self.origin, block.extended)
            yield block

    def _kept(self, numbers: Sequence[int]) -> tuple[KeyBlock, list[slice]]:
        first, starts = int(self.lists.starts[numbers[0]]), self.lists.starts
        block = self._keys.part(slice(first, int(starts[numbers[-1] + 1])))
        places = [slice(int(starts[number]) - first, int(starts[number + 1]) - first) for number in numbers]
        for number, place in zip(numbers, places, strict=True):
            if not self._is_read[number]:
                own = block.part(place)
                self._read(number, None, own)
                extend(own.vectors, self.origin, own.extended)
                self._is_read[number] = True
        return block, places

    def _read(self, number: int, part: range | None, block: KeyBlock) -> None:
        """Put rows and keys of a list, or of a part of it, into a block of as many."""
        block.rows[:] = self.lists.ids(number, part)
        widen(self.lists.keys(number, part), block.vectors)


def _empty(keys: int, dim: int, room: Room | None) -> KeyBlock:
    """Memory for so many keys."""
    if room is None:
        return KeyBlock(
            np.empty(keys, np.int64), np.empty((keys, dim), np.float32), np.empty((keys, dim + 1), np.float32)
        )
    return KeyBlock(
        room.array("rows", (keys,), np.int64),
        room.array("vectors", (keys, dim)),
        room.array("extended", (keys, dim + 1)),
    )
