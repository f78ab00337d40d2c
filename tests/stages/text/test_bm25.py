"""Against rank-bm25 itself and a slow loop for Lucene, on artificial and on real text."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi
from scipy.sparse import csr_array

from stages.text import bm25 as index
from stages.text.bm25 import SCORINGS, Bm25Index, lucene_idf, okapi_idf, term_counts
from tests.oracles.bm25 import lucene_scores, matches, okapi_scores

ORACLES = {"lucene": lucene_scores, "okapi": okapi_scores}


def counted(documents: list[list[int]]) -> csr_array:
    table = np.zeros((len(documents), 1 + max(map(max, documents))), np.int64)
    for row, document in enumerate(documents):
        for term, count in Counter(document).items():
            table[row, term] = count
    return csr_array(table)


def zipf(segments: int, length: int, terms: int, seed: int = 0) -> list[list[int]]:
    weights = 1 / np.arange(1, terms + 1)
    return (
        np.random.default_rng(seed)
        .choice(terms, (segments, length), p=weights / weights.sum())
        .tolist()
    )


def agrees(variant: str, documents: list[list[int]], k: int) -> None:
    """The index finds what the oracle finds, in its order and with its scores."""
    wanted = ORACLES[variant](documents)
    ids, scores = Bm25Index(counted(documents), SCORINGS[variant]).search(0, len(documents), k)
    best = matches(wanted, k, SCORINGS[variant].floor)
    assert [row[row >= 0].tolist() for row in ids] == best
    for row, found in enumerate(best):
        assert scores[row, : len(found)] == pytest.approx(wanted[row, found], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("variant", ORACLES)
@pytest.mark.parametrize(("terms", "length"), [(400, 30), (8, 50), (4000, 12)])
def test_matches_are_those_of_the_definition(
    variant: str, terms: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "QUERIES", 7)
    monkeypatch.setattr(index, "DOCUMENTS", 25)
    agrees(variant, zipf(90, length, terms), 20)


@pytest.mark.parametrize("variant", ORACLES)
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=9), min_size=2, max_size=12),
    st.integers(1, 5),
)
def test_documents_of_any_length_with_many_ties(
    variant: str, documents: list[list[int]], k: int
) -> None:
    """Where the mean idf is 0, okapi's floor is what rounding leaves of it, and so is the order."""
    assume(variant != "okapi" or abs(BM25Okapi(documents).average_idf) > 1e-9)
    agrees(variant, documents, k)


def test_documents_whose_mean_idf_is_nothing_but_rounding_are_still_ranked() -> None:
    documents = [[0, 1, 3], [0, 1, 3, 5], [2], [0, 1, 3, 4]]
    ids, scores = Bm25Index(counted(documents), SCORINGS["okapi"]).search(0, 4, 3)
    assert [sorted(row) for row in ids.tolist()] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert np.abs(scores).max() < 1e-12


@pytest.mark.parametrize("variant", ORACLES)
def test_equal_scores_are_ranked_by_the_smaller_id(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "DOCUMENTS", 3)
    documents = [
        [0, 1],
        [2, 3],
        [0, 1],
        [0, 1],
        [4, 5],
        [0, 1],
        [0, 1],
        *[[n, n + 1] for n in range(6, 20, 2)],
    ]
    ids, _ = Bm25Index(counted(documents), SCORINGS[variant]).search(0, len(documents), 3)
    assert ids[3].tolist() == [0, 2, 5]
    assert ids[0].tolist() == [2, 3, 5]


def test_lucene_finds_nothing_where_no_term_is_shared_and_okapi_ranks_all() -> None:
    documents = [[0, 1], [2, 3], [0, 4]]
    found = {
        variant: Bm25Index(counted(documents), SCORINGS[variant]).search(0, 3, 2)[0]
        for variant in SCORINGS
    }
    assert found["lucene"].tolist() == [[2, -1], [-1, -1], [0, -1]]
    assert sorted(found["okapi"][1]) == [0, 2]


def test_a_range_is_part_of_the_whole_and_threads_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = counted(zipf(120, 30, 300))
    monkeypatch.setattr(index, "QUERIES", 16)
    whole = Bm25Index(counts, SCORINGS["lucene"]).search(0, 120, 5)
    monkeypatch.setattr("stages.threads._threads", lambda controller: 4)
    part = Bm25Index(counts, SCORINGS["lucene"]).search(48, 96, 5)
    assert [a.tobytes() for a in part] == [a[48:96].tobytes() for a in whole]


def test_common_terms_and_rare_ones_make_one_score(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(zipf(80, 30, 300))
    found = []
    for share in (0.0, 0.05, 2.0):
        monkeypatch.setattr(index, "COMMON", share)
        found.append(Bm25Index(counts, SCORINGS["okapi"]).search(0, 80, 10))
    for ids, scores in found[1:]:
        assert np.array_equal(ids, found[0][0])
        assert scores == pytest.approx(found[0][1], rel=1e-6)


@pytest.mark.parametrize("variant", ORACLES)
@pytest.mark.parametrize("unit", ["word", "character"])
def test_matches_in_real_text_are_those_of_the_definition(variant: str, unit: str) -> None:
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    units = (text.split() if unit == "word" else list(text))[:6400]
    number = {unit: n for n, unit in enumerate(dict.fromkeys(units))}
    ids = np.array([number[unit] for unit in units])
    counts, documents = (
        term_counts(ids, np.arange(0, len(ids) + 1, 64), len(number)),
        ids.reshape(-1, 64).tolist(),
    )
    found, _ = Bm25Index(counts, SCORINGS[variant]).search(0, 100, 20)
    assert [row[row >= 0].tolist() for row in found] == matches(
        ORACLES[variant](documents), 20, SCORINGS[variant].floor
    )


@given(st.lists(st.integers(0, 5), min_size=7, max_size=80), st.integers(1, 7))
def test_counts_are_those_of_a_loop(ids: list[int], length: int) -> None:
    counts = term_counts(np.array(ids, np.uint16), np.arange(0, len(ids) + 1, length), 7).toarray()
    wanted = [
        [ids[s : s + length].count(t) for t in range(7)]
        for s in range(0, len(ids) - length + 1, length)
    ]
    assert counts.tolist() == wanted


def test_blocks_join(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, offsets = np.random.default_rng(0).integers(0, 9, 100), np.arange(0, 100, 3)
    whole = term_counts(ids, offsets, 9)
    monkeypatch.setattr("stages.text.bm25.BLOCK", 4)
    assert (term_counts(ids, offsets, 9) != whole).nnz == 0


def test_a_term_may_fill_a_long_segment() -> None:
    counts = term_counts(np.ones(70_000, np.uint16), np.array([0, 70_000]), 2)
    assert counts.toarray().tolist() == [[0, 70_000]]


def test_the_rarer_a_term_the_more_it_is_worth() -> None:
    holding = np.arange(1, 101)
    assert (np.diff(lucene_idf(holding, 100)) < 0).all()
    assert lucene_idf(holding, 100)[-1] > 0


def test_okapi_gives_terms_in_more_than_half_of_the_documents_a_quarter_of_the_mean() -> None:
    documents = [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 6, 7]]
    theirs = BM25Okapi(documents).idf
    holding = np.bincount(np.concatenate(documents))
    assert okapi_idf(holding, 4) == pytest.approx([theirs[term] for term in range(8)], rel=1e-12)
    assert theirs[0] > 0 == theirs[1]  # the floor is not reached, or the half is floored too


@pytest.mark.parametrize("variant", SCORINGS)
def test_repetition_adds_less_and_less_and_length_takes_away(variant: str) -> None:
    scoring = SCORINGS[variant]
    gained = scoring.saturation(np.arange(1, 50), np.ones(49))
    assert (np.diff(gained) > 0).all() and (np.diff(gained, 2) < 0).all()
    assert gained[-1] < scoring.gain
    assert scoring.saturation(np.array(3), np.array(2.0)) < gained[2]
