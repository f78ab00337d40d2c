"""The lists of an IVF index on a device other than the CPU; as many as fit stay there.

The keys of a list are cut into blocks of one width, and the last block is padded. The queries of a
list are cut into blocks of one height. So products of two blocks can be batched. Each query gets a
row of scores for all blocks that it reads.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from stages.search.lists import InvertedLists
from stages.search.ranking import NO_ROW
from stages.search.tensor_search import SPARE, TensorQueries, TensorSearch, WithAll
from stages.search.tensors import TensorKeys, memory_budget, moved, rows_at, rows_of, smallest
from stages.threads import slices

BLOCKS_OF_A_LIST = 3
WIDTHS = (16, 256)
"""Blocks in a list of mean length, at least; the smallest and largest number of keys in a block."""
HEIGHTS = (8, 256)
"""The smallest and largest number of queries in a block."""
BATCH = 1 << 26
"""Scores of the products in one batch: 256 MB."""
BROUGHT = 1 << 18
"""Keys that are copied to a device at a time."""


def block_width(sizes: np.ndarray) -> int:
    """Number of keys in a block, for lists of these sizes [lists]."""
    filled_sizes = sizes[sizes > 0]
    mean_size = int(filled_sizes.mean()) if len(filled_sizes) else 0
    return _power_of_two(mean_size // BLOCKS_OF_A_LIST, WIDTHS)


def _power_of_two(size: int, limits: tuple[int, int]) -> int:
    """The largest power of two that is at most `size`, clipped to the limits.

    >>> _power_of_two(100, (8, 256)), _power_of_two(0, (8, 256))
    (64, 8)
    """
    smallest, largest = limits
    power = 1 << (max(size, 1).bit_length() - 1)
    return min(max(power, smallest), largest)


class BlocksOnDevice:
    """Some blocks of keys, in order.

    Attributes:
        keys: [blocks * width]; rows are `NO_ROW` in padding.
        bias: [blocks, width] bias of rough scores; +inf in padding.
        counts: [lists + 1] number of blocks of each list that are here; the last entry is 0, for no
        list.
        firsts: [lists + 1] number of the first block of each list.
        radius: distance from the origin to the farthest key, [].
    """

    def __init__(
        self,
        lists: InvertedLists,
        blocks: range,
        width: int,
        dtype: torch.dtype,
        like: TensorQueries,
    ) -> None:
        # blocks of each list, of all that there are
        ends = np.cumsum(-(-lists.sizes // width))
        starts = np.append(0, ends[:-1])
        # those that are here
        firsts = starts.clip(blocks.start, blocks.stop)
        lasts = ends.clip(blocks.start, blocks.stop)

        self.width = width
        device = like.device
        # the last entry stands for no list
        self.counts = moved(np.append(lasts - firsts, 0), device)
        self.firsts = moved(np.append(firsts - blocks.start, 0), device)

        # all is padding until `_fill` copies keys
        num_keys = len(blocks) * width
        vectors = torch.zeros((num_keys, len(like.origin)), dtype=dtype, device=device)
        rows = torch.full((num_keys,), NO_ROW, device=device)
        self.keys = TensorKeys(rows, vectors)
        self.bias = torch.full((len(blocks), width), torch.inf, device=device)
        self.radius = torch.zeros((), device=device)

        places = width * (firsts - blocks.start)
        first_keys = width * (firsts - starts)
        last_keys = width * (lasts - starts)
        self._fill(lists, places, first_keys, last_keys, like)

    def _fill(
        self,
        lists: InvertedLists,
        places: np.ndarray,
        firsts: np.ndarray,
        lasts: np.ndarray,
        like: TensorQueries,
    ) -> None:
        """Copy keys `firsts` to `lasts` - 1 of each list, or to its end, to `places` onwards."""
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        num_keys = 0
        for number in np.flatnonzero(lasts > firsts).tolist():
            part = slice(firsts[number], lasts[number])
            rows = lists.ids(number, part)
            positions = places[number] + np.arange(len(rows))
            parts.append((positions, rows, lists.keys(number, part)))
            num_keys += len(rows)
            if num_keys >= BROUGHT:
                self._put(parts, like)
                parts = []
                num_keys = 0
        if parts:
            self._put(parts, like)

    def _put(
        self, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], like: TensorQueries
    ) -> None:
        """Copy places, rows and keys of some lists to the device."""
        places, rows, vectors = (
            moved(np.concatenate(arrays), like.device) for arrays in zip(*parts, strict=True)
        )
        self.keys.rows[places] = rows
        self.keys.vectors[places] = vectors

        centred = vectors.float() - like.origin
        # a view of all blocks, end to end
        bias = self.bias.view(-1)
        bias[places] = like.bias(centred)
        squared_radius = centred.square().sum(dim=1).amax()
        self.radius = torch.maximum(self.radius, squared_radius.sqrt())


class WithLists:
    """Comparison of queries with the blocks of the lists that each probes: a `Comparison`.

    Args:
        lists: int64 [n, probe] numbers of lists; -1: none.
        scores: number of scores that are computed at a time.
    """

    def __init__(
        self, queries: TensorQueries, lists: Tensor, blocks: BlocksOnDevice, scores: int
    ) -> None:
        self.keys = blocks.keys
        self.radius = blocks.radius
        self._queries = queries
        self._lists = lists
        self._blocks = blocks

        # each query gets as wide a row of scores as the one that reads the most blocks
        blocks_of_query = blocks.counts[lists].sum(dim=1)
        max_blocks = int(blocks_of_query.amax()) if len(lists) else 0
        max_scores = max(1, max_blocks * blocks.width)
        self.step = max(1, scores // max_scores)

    def nearest(self, which: slice, count: int) -> tuple[Tensor, Tensor]:
        scores, blocks = self._scores(which)
        rough, columns = smallest(scores, count)

        width = self._blocks.width
        block_numbers = blocks.gather(1, columns // width)
        places = block_numbers * width + columns % width
        return rough, places

    def _scores(self, which: slice) -> tuple[Tensor, Tensor]:
        """Rough scores [q, b * width] of the keys that a query reads, and the numbers of their b
        blocks [q, b].
        """
        lists = self._lists[which]
        num_queries, probe = lists.shape
        device = self._queries.device

        # [q, probe]: number of blocks of each list, and those up to its end
        counts = self._blocks.counts[lists]
        ends = counts.cumsum(dim=1)
        max_blocks = max(1, int(ends[:, -1].amax()))

        # the row of a query's first block, and from there of the first block of each of its lists
        query_starts = max_blocks * torch.arange(num_queries, device=device)[:, None]
        starts = (ends - counts + query_starts).flatten()

        # one row for each block of each query; the extra row receives the scores of padding in
        # blocks of queries
        num_rows = num_queries * max_blocks + 1
        last_row = num_rows - 1
        scores = torch.full((num_rows, self._blocks.width), torch.inf, device=device)
        numbers = torch.zeros(num_rows, dtype=torch.int64, device=device)

        for pairs, is_real, blocks, position in self._products(lists):
            queries = pairs // probe + which.start
            row_of_pair = starts[pairs] + position[:, None]  # [p, height]
            rows = torch.where(is_real, row_of_pair, last_row).flatten()
            scores[rows] = self._product(queries, blocks).flatten(0, 1)
            numbers[rows] = blocks.repeat_interleave(pairs.shape[1])

        table = scores[:-1].view(num_queries, -1)
        return table, numbers[:-1].view(num_queries, -1)

    def _products(self, lists: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Pairs of a block of queries and a block of keys of the same list, p at a time.

        Args:
            lists: [q, probe].
        Returns: numbers of the pairs that probe the list (query · probe + place) [p, height]; False
            for padding [p, height]; the block of keys [p]; and its position among the blocks of its
            list [p].
        """
        device = lists.device
        first_block = self._blocks.firsts
        num_blocks = self._blocks.counts[:-1]
        num_lists = len(num_blocks)

        # pairs of a list are a run once they are sorted: those of list i begin at limit i
        probed, pairs = lists.flatten().sort()
        numbers = torch.arange(num_lists + 1, device=device)
        limits = torch.searchsorted(probed, numbers)

        # a run is cut into blocks of one height; each meets all blocks of keys of its list
        pairs_per_list = lists.numel() // num_lists
        height = _power_of_two(pairs_per_list // 2, HEIGHTS)
        num_query_blocks = -(-limits.diff() // height)
        num_products = num_query_blocks * num_blocks
        ends = num_products.cumsum(0)
        starts = ends - num_products
        total = int(num_products.sum())

        offsets = torch.arange(height, device=device)
        for part in slices(total, self._at_once(height)):
            product = torch.arange(part.start, part.stop, device=device)
            list_number = torch.searchsorted(ends, product, right=True)
            product -= starts[list_number]
            # all blocks of keys come for a block of queries, then those for the next
            key_block = product % num_blocks[list_number]
            query_block = product // num_blocks[list_number]

            first_pair = limits[list_number] + query_block * height
            places = first_pair[:, None] + offsets  # [p, height]
            is_real = places < limits[list_number + 1][:, None]
            # padding reads any pair
            places.clamp_(max=len(pairs) - 1)
            yield pairs[places], is_real, first_block[list_number] + key_block, key_block

    def _at_once(self, height: int) -> int:
        """Products in one batch, limited by their scores and by the elements of their queries and
        keys.
        """
        width = self._blocks.width
        dim = self.keys.vectors.shape[1]
        by_scores = BATCH // (height * width)
        by_elements = self._queries.numbers // (max(height, width) * dim)
        return max(1, min(by_scores, by_elements))

    def _product(self, queries: Tensor, blocks: Tensor) -> Tensor:
        """Rough scores [p, height, width] of queries [p, height] with blocks of keys [p]."""
        width = self._blocks.width
        dim = self.keys.vectors.shape[1]

        # a block of keys is one row, which `index_select` copies as a whole
        blocks_of_keys = self.keys.vectors.view(-1, width * dim)
        vectors = blocks_of_keys.index_select(0, blocks).view(-1, width, dim)
        centred = vectors.float().sub_(self._queries.origin)  # [p, width, dim]
        factors = rows_at(self._queries.factors, queries)  # [p, height, dim]
        bias = self._blocks.bias[blocks][:, None]
        scores = torch.bmm(factors, centred.mT).add_(bias)

        if self._queries.hides:
            rows = self.keys.rows.view(-1, width)[blocks]
            hidden = self._queries.hidden(queries, rows[:, None])
            assert hidden is not None
            scores.masked_fill_(hidden, torch.inf)
        return scores


class TensorLists:
    """Compares queries with the lists that they probe.

    Args:
        centres: [lists, d] centroids, which are all compared with a query; None: `nearest` finds
        the lists.
        nearest: gives the numbers of the lists [n, probe] that queries [n, d] probe.
    """

    def __init__(
        self,
        lists: InvertedLists,
        centres: np.ndarray | None,
        nearest: Callable[[np.ndarray, int], np.ndarray],
        device: str,
    ) -> None:
        self.lists = lists
        self.device = device
        self.budget = memory_budget(device)
        self._nearest = nearest
        self.width = block_width(lists.sizes)

        # one key shows the width and the dtype of all
        filled = np.flatnonzero(lists.sizes)
        key = np.empty((0, 1), np.float16)
        if len(filled):
            key = lists.keys(int(filled[0]), slice(1))
        dim = key.shape[1]
        self._dtype = torch.from_numpy(key[:0].copy()).dtype

        blocks_of_list = -(-lists.sizes // self.width)
        self._total = int(blocks_of_list.sum())
        block_bytes = self.width * (dim * key.dtype.itemsize + 12)
        self._num_resident = min(self._total, self.budget.resident // block_bytes)
        self._step = max(1, self.budget.piece // (self.width * dim))
        self._resident: BlocksOnDevice | None = None

        self._centres: TensorKeys | None = None
        if centres is not None:
            numbers = torch.arange(len(centres), device=device)
            self._centres = TensorKeys(numbers, moved(centres, device))

    def comparisons(self, queries: TensorQueries, probe: int) -> Iterator[WithLists]:
        """Comparisons of queries with the `probe` lists that each of them reads."""
        lists = self._probed(queries, probe)
        for blocks in self._blocks(queries):
            yield WithLists(queries, lists, blocks, self.budget.scores)

    def _blocks(self, like: TensorQueries) -> Iterator[BlocksOnDevice]:
        if self._num_resident and self._resident is None:
            self._resident = self._copied(range(self._num_resident), like)
        if self._resident is not None:
            yield self._resident
        for part in slices(self._total, self._step, self._num_resident):
            yield self._copied(range(part.start, part.stop), like)

    def _copied(self, blocks: range, like: TensorQueries) -> BlocksOnDevice:
        return BlocksOnDevice(self.lists, blocks, self.width, self._dtype, like)

    def _probed(self, queries: TensorQueries, probe: int) -> Tensor:
        """Numbers of the lists that each query probes, int64 [n, probe], in any order; -1: none."""
        num_queries = len(queries)
        if probe == len(self.lists.sizes):
            all_lists = torch.arange(probe, device=self.device)
            return all_lists.expand(num_queries, -1)
        if self._centres is None:
            host_queries = queries.vectors.cpu().numpy()
            return moved(self._nearest(host_queries, probe), self.device)

        # centroids are keys: their rows are the numbers of the lists
        num_lists = len(self._centres.rows)
        search = TensorSearch(queries.seeing_all(), probe, SPARE, num_lists)
        lists = torch.empty((num_queries, probe), dtype=torch.int64, device=self.device)

        def put(part: slice, pairs: Tensor) -> None:
            lists[part] = rows_of(pairs, probe)

        comparison = WithAll(search.queries, self._centres, self.budget.scores)
        search.run([comparison], put)
        return lists
