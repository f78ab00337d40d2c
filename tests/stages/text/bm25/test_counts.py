import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text.bm25.counts import term_counts


@given(st.lists(st.integers(0, 5), min_size=7, max_size=80), st.integers(1, 7))
def test_counts_are_those_of_a_loop(ids: list[int], length: int) -> None:
    counts = term_counts(np.array(ids, np.uint16), length, 7).toarray()
    wanted = [[ids[s : s + length].count(t) for t in range(7)] for s in range(0, len(ids) - length + 1, length)]
    assert counts.tolist() == wanted


def test_blocks_join(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 9, 100)
    whole = term_counts(ids, 3, 9)
    monkeypatch.setattr("stages.text.bm25.counts.BLOCK", 4)
    assert (term_counts(ids, 3, 9) != whole).nnz == 0


def test_a_term_may_fill_a_long_segment() -> None:
    counts = term_counts(np.ones(70_000, np.uint16), 70_000, 2)
    assert counts.toarray().tolist() == [[0, 70_000]]
