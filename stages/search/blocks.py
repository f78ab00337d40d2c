"""Keys of several lists in one block, ready to be compared, and the queries of each list.

With larger blocks, threads make fewer and longer calls of NumPy.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int64

from stages.search.keys import widen
from stages.search.lists import WHOLE, InvertedLists
from stages.search.scan import KeyBlock, Scratch, squared_lengths
from stages.search.top_k import runs
from stages.threads import ThreadPool, slices

PIECE_BYTES = 8 << 20
"""Size of the float32 keys that a thread compares at a time; it holds them twice if it has to
compute lengths.
"""


class ListBlocks:
    """Blocks of an index's keys, decoded for comparison.

    Keys of the first lists are kept, as many as fit, since a block of queries compares each list
    twice.
    Squared lengths of keys in memory are all kept: they take 4 bytes a key, and are slow to
    compute.

    Args:
        kept_bytes: memory for keys; None: the lists are not in memory, and nothing is kept.
        width: width of the vectors; None: that of a key.

    Attributes:
        kept: number of leading lists whose keys are kept.
        piece: most keys that are compared at a time; longer lists come in parts.
        parts: number of parts of each list, int64 [lists].
    """

    def __init__(
        self,
        lists: InvertedLists,
        origin: np.ndarray,
        kept_bytes: int | None,
        width: int | None = None,
    ) -> None:
        self.lists = lists
        self.origin = origin
        self._dim = width or len(origin)
        self.piece = max(1, PIECE_BYTES // (4 * self._dim))
        self.parts = np.maximum(1, -(-lists.sizes // self.piece))

        # the bytes of the first n lists are at n: the last n that fits is the number of lists kept
        key_bytes = 8 + 4 * self._dim
        bytes_of_leading = lists.starts * key_bytes
        num_fitting = np.searchsorted(bytes_of_leading, kept_bytes or 0, side="right")
        self.kept = int(num_fitting) - 1
        self._is_read = np.zeros(self.kept, bool)

        # allocated before threads share it; pages take memory only once they are written
        num_kept_keys = int(lists.starts[self.kept])
        self._rows = np.empty(num_kept_keys, np.int64)
        self._vectors = np.empty((num_kept_keys, self._dim), np.float32)

        # nan: not computed yet
        self._lengths: np.ndarray | None = None
        if kept_bytes is not None:
            self._lengths = np.full(lists.starts[-1], np.nan, np.float32)

    def together(self, numbers: Sequence[int], scratch: Scratch) -> tuple[KeyBlock, list[slice]]:
        """The keys of some lists in one block, and the slice of each list.

        Args:
            numbers: numbers of the lists, rising; either all of these lists are kept or none.
        """
        # numbers rise, so the last one tells for all
        if numbers[-1] < self.kept:
            return self._resident_lists(numbers, scratch)

        sizes = self.lists.sizes[list(numbers)]
        ends = np.cumsum(sizes).tolist()
        starts = [0, *ends[:-1]]
        places = [slice(start, end) for start, end in zip(starts, ends, strict=True)]

        block = self._room_for(ends[-1], scratch)
        for number, place in zip(numbers, places, strict=True):
            self._read(number, WHOLE, block.part(place), scratch)
        return block, places

    def each(
        self, numbers: Sequence[int], scratch: Scratch
    ) -> Iterator[tuple[KeyBlock, list[slice]]]:
        """Blocks like those of `together`; a list of several parts is alone, and comes part by
        part.
        """
        first_list = numbers[0]
        if self.parts[first_list] == 1:
            yield self.together(numbers, scratch)
            return

        list_size = int(self.lists.sizes[first_list])
        for part in slices(list_size, self.piece):
            num_keys = part.stop - part.start
            block = self._room_for(num_keys, scratch)
            self._read(first_list, part, block, scratch)
            yield block, [slice(0, num_keys)]

    def _resident_lists(
        self, numbers: Sequence[int], scratch: Scratch
    ) -> tuple[KeyBlock, list[slice]]:
        """The keys of lists that stay in memory; a list is read when it is first asked for."""
        assert self._lengths is not None
        starts = self.lists.starts
        first = int(starts[numbers[0]])
        stop = int(starts[numbers[-1] + 1])
        keys = slice(first, stop)
        block = KeyBlock(self._rows[keys], self._vectors[keys], self._lengths[keys])

        places = []
        for number in numbers:
            # offsets in the block, which begins with the first of these lists
            start = int(starts[number]) - first
            end = int(starts[number + 1]) - first
            place = slice(start, end)
            places.append(place)
            # no lock: a list is in one group, and one thread works on a group
            if not self._is_read[number]:
                self._read(number, WHOLE, block.part(place), scratch)
                self._is_read[number] = True
        return block, places

    def _read(self, number: int, part: slice, block: KeyBlock, scratch: Scratch) -> None:
        """Read a list, or a part of it, into a block of the same size."""
        block.rows[:] = self.lists.ids(number, part)
        keys = self.lists.keys(number, part)
        widen(keys, block.vectors)

        if self._lengths is None:
            squared_lengths(block.vectors, self.origin, block.lengths, scratch)
            return

        first = int(self.lists.starts[number]) + (part.start or 0)
        stop = first + len(block.rows)
        lengths = self._lengths[first:stop]
        # lengths of a list, or of a part, are computed together, so the first one shows whether all
        # are known
        if np.isnan(lengths[0]):
            squared_lengths(block.vectors, self.origin, lengths, scratch)
        block.lengths[:] = lengths

    def _room_for(self, keys: int, scratch: Scratch) -> KeyBlock:
        return KeyBlock(
            scratch.array("rows", (keys,), np.int64),
            scratch.array("vectors", (keys, self._dim)),
            scratch.array("lengths", (keys,)),
        )


QUERIES_SORTED = 2048
"""Queries whose lists a thread sorts at a time."""


class ListQueries:
    """The pairs that probe each list. A query and its p-th list make the pair query · probe + p.

    Args:
        nearest: [n, probe] numbers of lists; -1: none.
        lists: number of lists.

    Attributes:
        counts: number of pairs of each list, int64 [lists].

    Queries 0 and 1 probe two lists each; list 2 is probed by the pairs 0 and 3:

    >>> queries = ListQueries(np.array([[2, 0], [1, 2]]), 3, lambda work, parts: [*map(work, parts)])
    >>> queries.counts.tolist(), queries.of([2]).tolist()
    ([1, 1, 2], [0, 3])
    """

    def __init__(self, nearest: Int64[np.ndarray, "n probe"], lists: int, pool: ThreadPool) -> None:
        num_queries, probe = nearest.shape
        parts = slices(num_queries, QUERIES_SORTED)
        # NumPy sorts 16-bit numbers by radix sort, which is several times faster
        number_type = np.uint16 if lists < 1 << 16 else np.int32
        list_numbers = np.arange(lists + 1)

        # pairs sorted by list within each part; in a part, those of list i begin at its limit i
        self._pairs = np.empty(nearest.size, np.int64)
        self._limits = np.zeros((len(parts), lists + 1), np.int64)

        def sort(index: int) -> None:
            part = nearest[parts[index]]
            first_pair = parts[index].start * probe
            pairs = self._pairs[first_pair : first_pair + part.size]

            # absent lists (-1) come last
            visited = np.where(part < 0, lists, part)
            visited = visited.ravel().astype(number_type)

            order = np.argsort(visited, kind="stable")
            limits = np.searchsorted(visited, list_numbers, sorter=order)
            self._limits[index] = limits + first_pair
            np.add(order, first_pair, out=pairs)

        pool(sort, range(len(parts)))
        counts_by_part = np.diff(self._limits, axis=1)
        self.counts: np.ndarray = counts_by_part.sum(axis=0)

    def of(self, numbers: list[int]) -> Int64[np.ndarray, " pairs"]:
        """The pairs that probe some lists, list after list."""
        starts = self._limits[:, numbers]
        ends = self._limits[:, np.add(numbers, 1)]

        # [parts, lists], transposed: all parts of a list come before the next list
        run_starts = starts.T.ravel()
        run_lengths = (ends - starts).T.ravel()
        return self._pairs.take(runs(run_starts, run_lengths))
