import faiss
import numpy as np
import pytest

from stages.lineage.runs import OwnRows, Runs
from stages.retrieval.neighbors import IndexSearch
from stages.search.open import searcher_of
from stages.search.searcher import Searcher

OFFSETS = np.array([0, 12, 40])
RANGES = [(0, 5), (30, 40), (11, 13)]


@pytest.mark.parametrize("exclude", ["none", "self", "window:3", "document"])
def test_ranges_that_are_searched_for_together_find_what_each_finds(
    exclude: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    index = faiss.IndexFlatL2(4)
    index.add(keys)
    own = {"train": OwnRows(Runs.whole(40), 0, OFFSETS)}
    retrieval = IndexSearch(searcher_of(index, "l2", None), 6, own, exclude)
    searches, search = [], Searcher.search
    monkeypatch.setattr(Searcher, "search", lambda *given: (searches.append(given), search(*given))[1])
    for split in ("train", "test"):
        found = retrieval.find_each(split, RANGES, [keys[a:b] for a, b in RANGES])
        assert len(searches) == 1
        for (start, stop), one in zip(RANGES, found, strict=True):
            alone = retrieval.find(split, start, stop, keys[start:stop])
            np.testing.assert_array_equal(one.ids, alone.ids)
            np.testing.assert_array_equal(one.distances, alone.distances)
        searches.clear()
