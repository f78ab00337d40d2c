"""Rows that stay, against all that stay taken at once."""

from types import SimpleNamespace

import numpy as np
import pytest

from stages.lineage.runs import KeptRows
from stages.search.keys import StoredKeys
from stages.updating.work import Work, copy_rows

OFFSETS = np.array([0, 3, 3, 8, 12, 13, 20])
KEYS = np.arange(40, dtype=np.float32).reshape(20, 2)


class CountedReads(StoredKeys):
    """Keys in shards of six rows, which notes what is read."""

    def __init__(self) -> None:
        super().__init__(KEYS, 6)
        self.shards_read: list[int] = []

    def read(self, shard: int) -> np.ndarray:
        self.shards_read.append(shard)
        return super().read(shard)


@pytest.mark.parametrize("gone", [[], [0], [2], [3, 5], [1, 2, 4]])
@pytest.mark.parametrize("step", [1, 4, 30])
def test_rows_that_stay_are_copied_and_each_old_shard_is_read_once(gone: list[int], step: int) -> None:
    kept = KeptRows.of_documents(OFFSETS, np.array(gone, np.int64))
    stays = np.flatnonzero(kept.contains(np.arange(20)))
    for start in range(0, kept.rows + 2, step):  # two rows are added, which nobody copies
        rows = slice(start, min(start + step, kept.rows + 2))
        keys, values = np.full((rows.stop - start, 2), -1, np.float32), np.full(rows.stop - start, -1)
        old = CountedReads()
        work = Work(SimpleNamespace(kept=kept), old, np.arange(20) + 100, None, None)
        copy_rows(work, rows, keys, values)
        copied = stays[rows]
        np.testing.assert_array_equal(keys[: len(copied)], KEYS[copied])
        np.testing.assert_array_equal(values[: len(copied)], copied + 100)
        assert (keys[len(copied) :] == -1).all()
        assert (values[len(copied) :] == -1).all()
        assert old.shards_read == sorted(set((copied // 6).tolist()))
