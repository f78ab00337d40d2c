import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from stages.text.bm25.scoring import SCORINGS, lucene_idf, okapi_idf


def test_the_rarer_a_term_the_more_it_is_worth() -> None:
    holding = np.arange(1, 101)
    assert (np.diff(lucene_idf(holding, 100)) < 0).all()
    assert lucene_idf(holding, 100)[-1] > 0


def test_okapi_gives_terms_in_more_than_half_of_the_documents_a_quarter_of_the_mean() -> None:
    documents = [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 6, 7]]
    theirs = BM25Okapi(documents).idf
    holding = np.bincount(np.concatenate(documents))
    assert okapi_idf(holding, 4) == pytest.approx([theirs[term] for term in range(8)], rel=1e-12)
    assert theirs[0] > 0 == theirs[1], "the floor is not reached, or the half is floored too"


@pytest.mark.parametrize("variant", SCORINGS)
def test_repetition_adds_less_and_less_and_length_takes_away(variant: str) -> None:
    scoring = SCORINGS[variant]
    gained = scoring.saturation(np.arange(1, 50), np.ones(49))
    assert (np.diff(gained) > 0).all() and (np.diff(gained, 2) < 0).all()
    assert gained[-1] < scoring.gain
    assert scoring.saturation(np.array(3), np.array(2.0)) < gained[2]
