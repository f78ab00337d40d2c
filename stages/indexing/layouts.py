"""Arrays of neighbours, and the queries that are searched together, by settings alone."""

from collections.abc import Mapping

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.search.config import NeighborsConfig

ROW_BYTES = 8 + 4
"""An id and a distance."""
QUERY_BYTES = 64 << 20
"""Bytes of the float32 queries of one shard; with more queries, more of them share the reading of a
list.
"""
FOUND_BYTES = 128 << 20
"""Bytes of the candidates of one shard's queries."""
FEWEST_QUERIES = 8192
MOST_QUERIES = 1 << 16


def shard_sizes(config: NeighborsConfig, dim: int) -> tuple[int, int]:
    """Queries of a shard, and rows of a Zarr shard, which divide them; both depend on settings
    alone.
    """
    row_bytes = max(config.k, int(config.candidates or 0)) * ROW_BYTES
    fitting = min(QUERY_BYTES // (4 * dim), FOUND_BYTES // row_bytes, MOST_QUERIES)
    queries = max(FEWEST_QUERIES, fitting)
    # a shard of work is a number of whole Zarr shards, so that no two writers share a file
    rows = min(rows_per_shard(config.k * ROW_BYTES), queries)
    return queries // rows * rows, rows


def query_layouts(
    config: NeighborsConfig, dim: int, tokens: Mapping[str, int]
) -> list[ArrayLayout]:
    """Layouts of the arrays of all splits; `tokens`: tokens of each split, `dim`: width of a query."""
    _, rows = shard_sizes(config, dim)
    return [
        layout
        for split, count in tokens.items()
        for layout in split_layouts(split, count, config.k, rows)
    ]


def split_layouts(split: str, tokens: int, k: int, rows: int) -> tuple[ArrayLayout, ArrayLayout]:
    """Ids and distances of a split's neighbours."""
    return (
        ArrayLayout(f"neighbors.zarr/{split}/ids", (tokens, k), "int64", rows),
        ArrayLayout(f"neighbors.zarr/{split}/distances", (tokens, k), "float32", rows),
    )
