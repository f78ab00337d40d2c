"""Hidden rows are left out of a search, as if the index did not hold them."""

import numpy as np
import pytest

from stages.search.hidden import HiddenRows, best_visible

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_visible_rows_are_those_of_a_sort(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 40))
    k = int(random.integers(1, 50))
    distances = random.integers(0, 9, (3, rows)).astype(np.float64)
    hidden = HiddenRows()
    is_hidden = np.zeros(rows, bool)
    for _ in range(int(random.integers(0, 5))):
        start, stop = np.sort(random.integers(0, rows + 1, 2))
        hidden.hide(np.array([[start, stop]]))
        is_hidden[start:stop] = True
    assert hidden.number == is_hidden.sum()
    assert hidden.contain(np.arange(rows)).tolist() == is_hidden.tolist()

    order = np.argsort(distances, axis=1, kind="stable")

    def nearest(width: int) -> tuple[np.ndarray, np.ndarray]:
        missing = max(0, width - rows)
        ids = np.pad(order[:, :width], ((0, 0), (0, missing)), constant_values=-1)
        near = np.take_along_axis(distances, order[:, :width], 1)
        padded = np.pad(near, ((0, 0), (0, missing)), constant_values=np.inf)
        return ids.astype(np.int64), padded.astype(np.float32)

    ids, found = best_visible(nearest, k, rows, hidden)
    for query in range(3):
        want = [row for row in order[query].tolist() if not is_hidden[row]][:k]
        assert ids[query].tolist() == want + [-1] * (k - len(want))
        assert found[query, : len(want)].tolist() == distances[query, want].tolist()
        assert np.isinf(found[query, len(want) :]).all()
