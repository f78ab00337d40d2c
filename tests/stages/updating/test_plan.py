"""What shards of rows hold of the split that is added behind those that stay."""

import numpy as np
import pytest

from stages.artifacts.arrays import ArrayLayout
from stages.encoding.stored_rows import RowLayouts
from stages.encoding.window_settings import TokenRange
from stages.lineage.runs import KeptRows
from stages.updating.plan import Plan, shards_of_rows


def plan(kept: int, added: int, per_shard: int) -> Plan:
    rows = kept + added
    layouts = RowLayouts(
        ArrayLayout("k", (rows, 2), "float32", per_shard), ArrayLayout("v", (rows,), "int32", per_shard)
    )
    ranges = np.array([[5, 5 + kept]] if kept else np.empty((0, 2)), np.int64)
    shards = shards_of_rows(layouts.keys, kept, carries_state=True)
    return Plan(shards, layouts, [], 1, KeptRows(ranges), np.zeros(len(ranges), np.int64), True)


@pytest.mark.parametrize(("kept", "added"), [(10, 7), (8, 8), (0, 9), (10, 0), (3, 1)])
@pytest.mark.parametrize("per_shard", [1, 4, 40])
def test_the_added_tokens_follow_each_other_through_the_shards(kept: int, added: int, per_shard: int) -> None:
    made = plan(kept, added, per_shard)
    tokens = [made.added(number) for number in range(len(made.shards))]
    assert [token for one in tokens for token in range(one.start, one.stop)] == list(range(added))
    assert [shard.chain is not None for shard in made.shards] == [one.start < one.stop for one in tokens]
    for number in range(len(tokens)):
        assert list(made.added_before(number)) == [one for one in tokens[:number] if one.start < one.stop][::-1]


def test_a_shard_is_known_by_its_number_and_the_tables_add_nothing() -> None:
    made = plan(3, 6, 4)
    assert [shard.key for shard in made.shards] == ["000000", "000001", "000002"]
    assert made.added(1) == TokenRange("000001", 1, 5)
