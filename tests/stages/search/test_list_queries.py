import numpy as np
import pytest

from stages.search import blocks as module
from stages.search.blocks import ListQueries
from stages.threads import in_turn


@pytest.mark.parametrize("queries", [1, 3, 100])
def test_pairs_of_lists_come_list_after_list(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES", queries)
    nearest = np.random.default_rng(0).integers(-1, 6, (20, 3))
    visits = ListQueries(nearest, 8, in_turn)
    want = [np.flatnonzero(nearest.ravel() == number).tolist() for number in range(8)]
    assert visits.counts.tolist() == [len(pairs) for pairs in want]
    assert visits.of([1, 2, 5, 7]).tolist() == [*want[1], *want[2], *want[5]]
    assert visits.of([6]).tolist() == []
