"""Neighbours of ranges, against searches one by one and a walk through one token after the other."""

from dataclasses import dataclass
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from stages.lineage.runs import OwnRows, Runs
from stages.retrieval import neighbors
from stages.retrieval.neighbors import IndexSearch, PointerSearch, followed, neighbor_tokens
from stages.search.keys import StoredKeys
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
    monkeypatch.setattr(
        Searcher, "search", lambda *given: (searches.append(given), search(*given))[1]
    )
    for split in ("train", "test"):
        found = retrieval.find_each(split, RANGES, [keys[a:b] for a, b in RANGES])
        assert len(searches) == 1
        for (start, stop), one in zip(RANGES, found, strict=True):
            alone = retrieval.find(split, start, stop, keys[start:stop])
            np.testing.assert_array_equal(one.ids, alone.ids)
            np.testing.assert_array_equal(one.distances, alone.distances)
        searches.clear()


VALUES = np.array([7, 0, 65_536, 3], np.int32)


@given(
    any_array(
        np.int64, st.tuples(st.integers(0, 5), st.integers(0, 4)), elements=st.integers(-1, 3)
    )
)
def test_every_neighbour_becomes_the_token_of_its_row(ids: np.ndarray) -> None:
    tokens = neighbor_tokens(ids, VALUES)

    assert tokens.dtype == np.int64
    assert tokens.tolist() == [
        [-1 if i < 0 else int(VALUES[i]) for i in row] for row in ids.tolist()
    ]


def test_a_mapped_file_serves_as_values(tmp_path) -> None:
    VALUES.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.int32, mode="r")

    assert neighbor_tokens(np.array([[2, -1], [3, 0]]), mapped).tolist() == [[65_536, -1], [3, 7]]


@dataclass(frozen=True)
class Exhaustive:
    """A search that compares all keys."""

    keys: np.ndarray
    metric = "l2"

    def search(
        self, queries: np.ndarray, k: int, forbidden: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        found = [
            nearest(q, self.keys, range(len(self.keys)), k, forbidden, i)
            for i, q in enumerate(queries)
        ]
        ids, distances = (
            (np.array(one).reshape(-1, k) for one in zip(*found, strict=True))
            if found
            else np.zeros((2, 0, k))
        )
        return ids.astype(np.int64), distances.astype(np.float32)


def nearest(query, keys, rows, k, forbidden, place):
    legal = [
        r for r in rows if forbidden is None or not forbidden[place, 0] <= r < forbidden[place, 1]
    ]
    ranked = sorted((float(((query - keys[r]) ** 2).sum()), r) for r in legal)[:k]
    missing = k - len(ranked)
    return [r for _, r in ranked] + [-1] * missing, [d for d, _ in ranked] + [np.inf] * missing


def walked(tokens, values, keys, queries, k, fewest, start, forbidden):
    """Rows of each token as a set with distances, and whether it was searched for."""
    rows, out = [], []
    for i, query in enumerate(queries):
        ahead = (
            []
            if i == 0 or (start + i) % neighbors.STREAM == 0
            else [r + 1 for r in rows if values[r] == tokens[i - 1] and r + 1 < len(values)]
        )
        if forbidden is not None:
            ahead = [r for r in ahead if not forbidden[i, 0] <= r < forbidden[i, 1]]
        searched = len(ahead) < fewest
        ids, distances = nearest(
            query, keys, range(len(keys)) if searched else ahead, k, forbidden, i
        )
        rows = [r for r in ids if r >= 0]
        out.append((set(rows), sorted(distances), searched))
    return out


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 30),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(1, 6),
    st.booleans(),
    st.integers(0),
)
def test_they_are_those_of_a_walk(
    start: int, n: int, fewest: int, k: int, hides: bool, seed: int
) -> None:
    random, stop = np.random.default_rng(seed), start + n
    values, tokens = random.integers(0, 3, 25).astype(np.int32), random.integers(0, 3, stop)
    keys, queries = random.random((25, 4), np.float32), random.random((n, 4), np.float32)
    low = random.integers(0, 25, n)
    forbidden = np.stack([low, low + random.integers(0, 9, n)], 1) if hides else None
    own = {"train": SimpleNamespace(forbidden=lambda *_: forbidden)} if hides else {}
    datastore = SimpleNamespace(
        keys=StoredKeys(keys, rows_per_shard=7), values=torch.tensor([*values, -1]), metric="l2"
    )
    search = IndexSearch(Exhaustive(keys), k, own, "self")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(neighbors, "STREAM", 8)
        found = PointerSearch(search, datastore, lambda _, a, b: tokens[a:b], fewest).find(
            "train", start, stop, queries
        )
        want = walked(tokens[start:stop], values, keys, queries, k, fewest, start, forbidden)
    assert [set(row[row >= 0].tolist()) for row in found.ids] == [rows for rows, _, _ in want]
    np.testing.assert_allclose(
        found.distances, np.array([distances for _, distances, _ in want]), rtol=1e-5
    )
    assert found.searches == sum(searched for *_, searched in want)


def test_nothing_is_behind_the_last_row() -> None:
    assert followed(np.array([[1, -1]]), np.array([5]), np.array([5, 5])).tolist() == [[-1, -1]]
