from typing import Any, ClassVar

from stages.retrieval.sources.similar_pairs import SimilarPairsSource
from stages.retrieval.sources.source import Source
from tests.stages.retrieval.sources.contract import SourceContract, small_datastore


class TestSimilarPairs(SourceContract):
    memories: ClassVar[dict[type[Source], Any]] = {
        SimilarPairsSource: small_datastore(lossless=True)
    }
    spec = "similar-pairs:key=hidden,lambda=0.5,similarity=l2,k=2/5/8,pairs=3"


def test_a_table_tells_how_many_pairs_are_found() -> None:
    assert TestSimilarPairs().source.about.details == {"pairs": 3}
