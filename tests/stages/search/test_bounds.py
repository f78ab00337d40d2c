import numpy as np
import pytest

from stages.search import top_k as module
from stages.search.top_k import ScoreTable
from stages.threads import in_turn


@pytest.mark.parametrize("rank", [1, 3, 9])
@pytest.mark.parametrize("at_a_time", [1, 1 << 18])
def test_the_score_of_a_rank_is_found_among_those_of_a_query(
    rank: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row put into a cell the first scores count, as many as the cell takes."""
    monkeypatch.setattr(module, "TABLE_SCORES", at_a_time)
    random = np.random.default_rng(0)
    sizes = np.array([[4, 4, 0], [4, 1, 3], [0, 0, 0], [0, 2, 4]])
    table, given = ScoreTable(sizes, rank), np.sort(random.random((12, 4), np.float32), axis=1)
    for cells in ([0, 1, 3], [4, 5, 2], [6, 7, 8, 9], [10, 11]):
        table.put(np.array(cells), given[cells])
    found = table.ranked(in_turn)
    for query, own in enumerate(sizes):
        scores = np.sort(np.concatenate([given[3 * query + cell][:size] for cell, size in enumerate(own)]))
        assert found[query] == (scores[rank - 1] if len(scores) >= rank else np.inf)
