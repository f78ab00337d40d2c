"""Upper bounds on the scores of a query's neighbours, from the nearest inverted lists alone."""

from collections.abc import Iterator

import numpy as np

from stages.search.blocks import QUERIES_SORTED, ListBlocks, ListQueries
from stages.search.list_groups import list_groups, list_tiles
from stages.search.scan import QueryBlock, Scratch
from stages.search.tiles import smallest_of
from stages.search.top_k import ScoreTable
from stages.threads import ThreadPool, slices

BOUND_KEYS = 4
"""Times k: number of keys of the nearest lists that are ranked to bound the scores of the
neighbours.
"""


class ScoreBounds:
    """Bounds for queries of an IVF index whose keys are in `blocks`."""

    def __init__(self, blocks: ListBlocks) -> None:
        self._blocks = blocks
        self._num_lists = len(blocks.lists.sizes)

    def of(
        self, queries: QueryBlock, nearest: np.ndarray, k: int, pool: ThreadPool, scratch: Scratch
    ) -> np.ndarray:
        """Upper bounds [n] on the rough scores of the k best rows of each query.

        Enough rows of the nearest lists have scores within the bound. Only the nearest lists are
        ranked, until they hold BOUND_KEYS * depth allowed rows. Each query keeps at most
        (BOUND_KEYS + 1) * depth of their best scores.
        """
        depth = queries.depth(k)
        radii = [np.float32(0)]
        sizes = self._scores_to_rank(queries, nearest, depth, pool)
        table = ScoreTable(sizes, depth)
        num_ranked = sizes.shape[1]
        # lists without a score are left out, so that none is compared in vain
        ranked_lists = np.where(sizes > 0, nearest[:, :num_ranked], -1)
        visits = ListQueries(ranked_lists, self._num_lists, pool)

        def score(numbers: list[int]) -> None:
            pairs = visits.of(numbers)
            which = pairs // num_ranked
            counts = visits.counts[numbers]
            smallest = self._smallest(queries, numbers, which, counts, depth, radii, scratch)
            for part, scores in smallest:
                table.put(pairs[part], scores)

        pool(score, list_groups(self._blocks, visits, pool))
        return queries.reach(table.ranked(pool), max(radii))

    def _scores_to_rank(
        self, queries: QueryBlock, nearest: np.ndarray, depth: int, pool: ThreadPool
    ) -> np.ndarray:
        """Number of scores [n, m] that `of` ranks from each of the m nearest lists of a query."""
        visible_rows = self._rows_to_see(queries, nearest, pool)

        def choose(part: slice) -> None:
            visible = visible_rows[part]
            visible_before = np.cumsum(visible, axis=1) - visible
            is_ranked = visible_before < BOUND_KEYS * depth
            visible_rows[part] = np.where(is_ranked, np.minimum(visible, depth), 0)

        pool(choose, slices(len(visible_rows), QUERIES_SORTED))
        ranked = np.flatnonzero(visible_rows.any(axis=0))
        num_ranked = ranked[-1] + 1 if len(ranked) else 1
        return visible_rows[:, :num_ranked]

    def _smallest(
        self,
        queries: QueryBlock,
        numbers: list[int],
        which: np.ndarray,
        counts: np.ndarray,
        depth: int,
        radii: list[np.float32],
        scratch: Scratch,
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """The smallest rough scores of queries in some lists, as `QueryBlock.smallest` has them.

        Args:
            which: queries, list by list; `counts` is the number for each list.
            radii: receives the radius of each block of keys.
        """
        is_in_parts = self._blocks.parts[numbers[0]] > 1
        best = np.empty((len(which), 0), np.float32)
        for keys, places in self._blocks.each(numbers, scratch):
            radii.append(max(keys.part(place).radius for place in places))
            tiles = list_tiles(which, counts, places)
            smallest = queries.smallest(tiles, keys, depth, scratch)
            if not is_in_parts:
                yield from smallest
                return

            # the smallest scores of the parts before are joined; copied, since their memory is
            # used again
            part_scores = np.concatenate([scores.copy() for _, scores in smallest])
            scores = np.concatenate([best, part_scores], axis=1)
            best = smallest_of(scores, depth, rising=queries.hides)
        yield slice(None), best

    def _rows_to_see(
        self, queries: QueryBlock, nearest: np.ndarray, pool: ThreadPool
    ) -> np.ndarray:
        """Number of rows [n, probe] that each query may see in its lists; short excluded ranges are
        not subtracted.
        """
        lists = self._blocks.lists
        probe = nearest.shape[1]
        exclude = queries.exclude
        num_visible = np.empty(nearest.shape, np.int64)

        def count(part: slice) -> None:
            numbers = nearest[part]
            # -1, no list, takes the size of the last one
            num_visible[part] = np.where(numbers < 0, 0, lists.sizes[numbers])

        pool(count, slices(len(nearest), QUERIES_SORTED))
        if not queries.hides or exclude is None:
            return num_visible

        visits = ListQueries(nearest, self._num_lists, pool)
        visible_of_pair = num_visible.reshape(-1)  # a view

        def subtract_hidden(number: int) -> None:
            pairs = visits.of([number])
            excluded = exclude[pairs // probe]
            # rows rise within a list, so a range of them is a slice
            starts, stops = np.searchsorted(lists.ids(number), excluded).T
            visible_of_pair[pairs] -= (stops - starts).clip(0)

        is_visited = (visits.counts > 0) & (lists.sizes > 0)
        pool(subtract_hidden, np.flatnonzero(is_visited).tolist())
        return num_visible
