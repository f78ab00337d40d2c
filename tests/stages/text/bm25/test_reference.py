"""rank-bm25 as an engine beside the fast one."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from stages.text.bm25.counts import term_counts
from stages.text.bm25.index import Bm25Index, itself
from stages.text.bm25.reference import RankBm25
from stages.text.bm25.scoring import SCORINGS


@given(st.integers(2, 14), st.integers(1, 9), st.integers(1, 13), st.integers(0, 2**32))
def test_both_engines_find_the_same_matches(segments: int, length: int, k: int, seed: int) -> None:
    """Where the mean idf is 0, okapi's floor is what rounding leaves of it, and so is the order."""
    texts = np.random.default_rng(seed).integers(0, 12, (segments, length))
    assume(abs(BM25Okapi(texts.tolist()).average_idf) > 1e-9)
    k = min(k, segments - 1)
    fast = Bm25Index(term_counts(texts.ravel(), length, 12), SCORINGS["okapi"])
    for start, stop in ((0, segments), (segments // 2, segments)):
        ids, scores = RankBm25(texts, itself(len(texts))).search(start, stop, k)
        wanted, scored = fast.search(start, stop, k)
        assert (ids == wanted).all()
        assert scores == pytest.approx(scored, rel=1e-6, abs=1e-9)
