"""How the rows of a changed datastore are cut into shards, and what each shard is made of."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import ADDED
from stages.artifacts.stage import Shard, ShardPlan
from stages.encoding.stored_rows import RowLayouts
from stages.encoding.window_settings import STATES_KEPT, TokenRange, state_bytes
from stages.lineage.runs import KeptRows
from stages.models.config import model_of
from stages.updating.change import Change, seen_behind
from stages.updating.config import UpdateConfig
from stages.updating.tables import Table, stored_tables

TABLES = "documents"
"""Key of the shard that says whose rows they are; each of the others is a range of rows."""


@dataclass(frozen=True)
class Plan(ShardPlan[Shard]):
    """The changed rows, and how they are cut into shards."""

    layouts: RowLayouts
    tables: list[Table]
    """Whose rows they are, as it will lie on disk."""
    documents: int
    kept: KeptRows
    reread: np.ndarray
    """Rows at the start of each range that stays which are encoded again, since they had seen what goes; int64 [K]."""
    carries_state: bool

    @property
    def rows(self) -> int:
        return self.layouts.keys.shape[0]

    @property
    def dim(self) -> int:
        """Width of keys, d."""
        return self.layouts.keys.shape[1]

    def added(self, number: int) -> TokenRange:
        """Tokens of the added split that a shard of rows holds, perhaps none."""
        rows = self.layouts.keys.rows(number)
        return TokenRange(_key(number), max(0, rows.start - self.kept.rows), max(0, rows.stop - self.kept.rows))

    def added_before(self, number: int) -> Iterator[TokenRange]:
        """The tokens of the added split that the shards before one hold, the last first."""
        for earlier in map(self.added, reversed(range(number))):
            if earlier.start == earlier.stop:
                return
            yield earlier


def plan_change(config: UpdateConfig, encoder: Artifact, change: Change) -> Plan:
    """Plan a change of the rows, with the model of their keys."""
    carries, layouts = model_of(encoder).carries_state, row_layouts(config, encoder, change.after.rows)
    tables = stored_tables(change.after)
    return Plan(
        [Shard(TABLES), *shards_of_rows(layouts.keys, change.kept.rows, carries_state=carries)],
        layouts,
        tables,
        change.after.documents,
        change.kept,
        _seen_what_goes(config, change, carries),
        carries,
        arrays=[*layouts, *(layout for layout, _ in tables)],
        scratch_bytes=STATES_KEPT * state_bytes(encoder, config.windows, change.after.rows),
    )


def shards_of_rows(keys: ArrayLayout, kept: int, *, carries_state: bool) -> list[Shard]:
    """Shards of keys and values, the first `kept` rows of which stay: those behind them may carry a state."""
    ends = [keys.rows(number).stop for number in range(keys.shards)]
    return [Shard(_key(n), chain=ADDED if carries_state and end > kept else None) for n, end in enumerate(ends)]


def row_layouts(config: UpdateConfig, encoder: Artifact, rows: int) -> RowLayouts:
    """The arrays of so many rows, by resolved settings."""
    assert config.dtype is not None
    return RowLayouts.of(encoder, rows, config.dtype, config.stride or 1)


def _seen_what_goes(config: UpdateConfig, change: Change, carries_state: bool) -> np.ndarray:
    """`Plan.reread`: what was read in windows; not by document, nor what a state carried, which cannot be undone."""
    if carries_state or config.reset == "document":
        return np.zeros(len(change.kept.ranges), np.int64)
    return seen_behind(change.before.runs, change.kept, config.windows)


def _key(number: int) -> str:
    """Key of a shard of rows."""
    return f"{number:06d}"
