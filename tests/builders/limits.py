"""Smaller limits for tests: sizes in which work is cut, and the fewest observations of a figure.

Tests name a limit; where it stands in the package is said here alone. A test of one function gives
that function its limit as an argument instead.
"""

from typing import Any

import pytest

LIMITS = {
    # Shards: work of the size of a shard is lost by an interruption.
    "tokens_per_shard": "stages.evaluation.plan.MOST_TOKENS_PER_SHARD",
    "arithmetic_per_shard": "stages.evaluation.plan.ARITHMETIC_PER_SHARD",
    "sentences_per_shard": "stages.evaluation.plan.SENTENCES_PER_SHARD",
    "shard_bytes": "stages.artifacts.arrays.TARGET_SHARD_BYTES",
    "index_part_bytes": "stages.indexing.vectors.PART_BYTES",
    "pooled_rows": "stages.encoding.stored_rows.POOLED_ROWS",
    "shard_characters": "stages.text.spool.SHARD_CHARACTERS",
    "shard_pieces": "stages.text.spool.SHARD_PIECES",
    "longest_piece": "stages.text.files.LONGEST_PIECE",
    "contexts_per_shard": "stages.suffixes.indexing.CONTEXTS_PER_SHARD",
    "suffixes_per_shard": "stages.suffixes.indexing.ROWS_PER_SHARD",
    # Blocks: what is in memory at once.
    "chunk_entries": "stages.retrieval.sources.recent.CHUNK_ENTRIES",
    "min_chunk_positions": "stages.retrieval.sources.recent.FEWEST_POSITIONS",
    "raw_block": "stages.text.files.RAW_BLOCK",
    "tokens_written": "stages.comparison.compare.TOKENS_WRITTEN",
    # Choices: fits and grids.
    "min_positions_of_fit": "stages.memory.weight_network.SHORTEST",
    "errors_of_gain": "stages.memory.weight_network.SIGNIFICANT",
    "points_together": "stages.retrieval.weights.grid.TRIED_TOGETHER",
    # Figures.
    "conditions_checked": "stages.evaluation.figures.conditions.POSITIONS",
    "min_units": "stages.evaluation.figures.intervals.FEWEST_UNITS",
    "min_units_of_remark": "stages.reports.remarks.gains.FEWEST_UNITS",
    "group_tokens": "stages.evaluation.figures.places.SHORTEST_GROUP",
    # Messages of progress.
    "seconds_between_lines": "memlm_cli.progress.SECONDS_BETWEEN_LINES",
    "seconds_between_ticks": "memlm_cli.progress.SECONDS_BETWEEN_TICKS",
    "quiet_seconds": "memlm_cli.progress.QUIET_SECONDS",
}
"""The constant of the package that holds each limit."""


def limit(patch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Set limits of `LIMITS` until the end of a test, or of the block of a patch."""
    for name, value in limits.items():
        patch.setattr(LIMITS[name], value)
