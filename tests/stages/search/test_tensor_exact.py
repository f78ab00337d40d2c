import numpy as np
import pytest

from stages.search.keys import StoredKeys
from stages.search.tensor_search import KeysOnDevice

KEY_BYTES = 3 * 2 + 8


class Counted(StoredKeys):
    """Keys that remember which shards were read."""

    def __init__(self, keys: np.ndarray) -> None:
        super().__init__(keys, rows_per_shard=10)
        self.seen: list[int] = []

    def read(self, shard: int) -> np.ndarray:
        self.seen.append(shard)
        return super().read(shard)


@pytest.mark.parametrize("held", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [4, 10, 100])
def test_shards_stay_on_a_device_while_there_is_room(held: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.search.tensors.HELD_ELSEWHERE", 10 * held * KEY_BYTES)
    monkeypatch.setattr("stages.search.tensors.PIECE_NUMBERS", 3 * step)
    keys = np.random.default_rng(0).standard_normal((25, 3)).astype(np.float16)
    stored = Counted(keys)
    on_device = KeysOnDevice(stored, "cpu")
    for expected in ([0, 1, 2], [shard for shard in range(3) if shard >= held]):
        stored.seen.clear()
        pieces = list(on_device)
        assert stored.seen == expected
        assert max(len(piece.rows) for piece in pieces) <= step
        np.testing.assert_array_equal(np.concatenate([piece.rows for piece in pieces]), np.arange(25))
        np.testing.assert_array_equal(np.concatenate([piece.vectors for piece in pieces]), keys)
        assert all(piece.vectors.numpy().dtype == np.float16 for piece in pieces)
