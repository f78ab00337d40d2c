"""How the rows of a changed datastore are cut into shards, and what each shard is made of."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import ADDED
from stages.artifacts.stage import Shard
from stages.encoding.stored_rows import RowLayouts
from stages.encoding.window_settings import TokenRange
from stages.lineage.runs import KeptRows
from stages.models.config import model_of
from stages.updating.change import Change
from stages.updating.changed_rows import seen_behind
from stages.updating.config import UpdateConfig
from stages.updating.tables import Table, stored_tables

TABLES = "documents"
"""Key of the shard that says whose rows they are; each of the others is a range of rows."""


@dataclass(frozen=True)
class Plan:
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

    @property
    def row_shards(self) -> list[Shard]:
        """The shards of keys and values."""
        keys = map(_key, range(self.layouts.keys.shards))
        return [Shard(key, chain=ADDED if self.carries_state and self._adds(key) else None) for key in keys]

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

    def _adds(self, key: str) -> bool:
        """Whether a shard of rows holds tokens of the added split."""
        return self.added(int(key)).stop > 0


def plan_change(config: UpdateConfig, encoder: Artifact, change: Change) -> Plan:
    """Plan a change of the rows, with the model of their keys."""
    carries = model_of(encoder).carries_state
    return Plan(
        row_layouts(config, encoder, change.after.rows),
        stored_tables(change.after),
        change.after.documents,
        change.kept,
        _seen_what_goes(config, change, carries),
        carries,
    )


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
