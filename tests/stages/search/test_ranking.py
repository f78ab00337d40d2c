import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stages.search.ranking import allowed_rows, best_first, without

SCORES = st.sampled_from([-np.inf, -1e30, -2.5, -0.0, 0.0, 1e-40, 1.0, 1.5, 3e38, np.inf])


@given(
    scores=arrays(np.float32, (4, 7), elements=SCORES.map(np.float32)),
    ids=arrays(np.int64, (4, 7), elements=st.integers(-1, 2**32 - 2)),
    k=st.integers(1, 9),
)
def test_sorts_by_score_then_row_and_pads(scores: np.ndarray, ids: np.ndarray, k: int) -> None:
    got_scores, got_ids = best_first(scores, ids, k)
    for row in range(4):
        present = [
            (s, i) for s, i in zip(scores[row], ids[row], strict=True) if i >= 0 and s < np.inf
        ]
        want = sorted(present)[:k]
        padded = [*want, *[(np.inf, -1)] * (k - len(want))]
        assert list(zip(got_scores[row], got_ids[row], strict=True)) == padded


def test_excluded_rows_lose_their_names() -> None:
    ids, ranges = np.array([[3, 4, 5], [3, 4, 5]]), np.array([[4, 5], [0, 0]])
    np.testing.assert_array_equal(without(ids, ranges), [[3, -1, 5], [3, 4, 5]])
    assert without(ids, None) is ids


def test_counts_rows_that_may_be_seen() -> None:
    ranges = np.array([[0, 0], [2, 5], [-3, 2], [8, 99], [5, 3]])
    np.testing.assert_array_equal(allowed_rows(10, 5, ranges), [10, 7, 8, 8, 10])
    np.testing.assert_array_equal(allowed_rows(10, 2, None), [10, 10])
