"""Keys that stand for those that are not made yet."""

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.encoding.made_up import SPREAD, keys_like


def test_keys_come_again_moved_by_a_share_of_their_spread() -> None:
    keys = np.random.default_rng(1).normal(3.0, [0.1, 5.0], (400, 2)).astype("float16")
    shards = list(keys_like(keys, ArrayLayout("keys", (1000, 2), "float16", 300)))
    assert [shard.shape for shard in shards] == [(300, 2), (300, 2), (300, 2), (100, 2)]
    made = np.concatenate(shards)
    assert made.dtype == np.float16
    np.testing.assert_array_equal(made[:400], keys)
    moved = (made[400:800] - keys).astype(np.float32)
    np.testing.assert_allclose(moved.std(axis=0), SPREAD * keys.astype(np.float32).std(axis=0), rtol=0.1)
    assert len(np.unique(made[:, 1])) > 600, "none is there twice, but for rounding"
