"""Code of the source `similar-pairs`: neighbours among the tokens of a few pairs, searched exactly."""

from dataclasses import replace
from typing import ClassVar

from stages.lineage.sources import PAIRS
from stages.retrieval.reading import Reading
from stages.retrieval.sources.external import ExternalSource
from stages.retrieval.sources.source import About, SourceInputs


class SimilarPairsSource(ExternalSource):
    """Neighbours as those of a datastore; rows are tokens of the split that pairs are of."""

    role: ClassVar[str] = PAIRS

    @property
    def about(self) -> About:
        """With the number of pairs in place of how distances were found."""
        return replace(super().about, details={"pairs": self.reading.value("pairs")})


def open_pairs(reading: Reading, inputs: SourceInputs) -> SimilarPairsSource:
    """The neighbours that a completed reading of `similar-pairs` reads."""
    assert inputs.datastore is not None
    return SimilarPairsSource(reading, inputs.device, inputs.datastore)
