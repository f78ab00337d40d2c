"""What searching on a GPU holds, by hand."""

import pytest

from stages.search import device_memory
from stages.search.device_memory import search_peak
from stages.search.tensors import Room

KEYS = {"rows": 1_000_000, "dim": 256, "dtype": "float16"}


@pytest.mark.parametrize(
    ("held", "stays", "pieces"),
    [(10**9, 520_000_000, 1), (10**8, 10**8, 2)],
    ids=["all keys stay", "a part of them stays"],
)
def test_keys_scores_and_pairs(held: int, stays: int, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "room_on", lambda device: Room(held, 1_000, 2_000, 3_000))
    assert search_peak("flat", KEYS) == stays + pieces * 4 * 3_000 + 2 * 4 * 1_000 + 2 * 4 * 2_000 + 4 * 1_000_000
    assert search_peak("ivf-flat", KEYS) == search_peak("flat", KEYS)


def test_other_kinds_stay_on_the_cpu() -> None:
    assert search_peak("hnsw", KEYS) == search_peak("ivf-pq", KEYS) == 0
