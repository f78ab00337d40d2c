"""Settings of the source `similar-pairs`: the nearest tokens of the pairs whose sources are most alike."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.examples import PAIRS as PAIRS_OF_SENTENCES
from stages.examples import STREAMS
from stages.lineage.sources import PAIRS_SPLIT
from stages.memory.hyperparameter import Choice, Count, Hyperparameter, doubling_cutoffs
from stages.methods.defaults import default_similarity, stored_key
from stages.retrieval.sources.settings import SourceSettings

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading

MOST_NEIGHBORS = 64
"""Neighbours that `tune` reads at most: a few pairs have few tokens."""
DEFAULT_NEIGHBORS = 16


class SimilarPairsSettings(SourceSettings):
    """How many pairs are found for a sentence, and how many of their tokens are read."""

    word: ClassVar[str] = "similar pairs"
    means: ClassVar[str] = "the k nearest tokens of the pairs whose sources BM25 finds"
    amount: ClassVar[str] = "k"
    reads_pairs: ClassVar[bool] = True
    k: Annotated[Choice[Count] | None, Hyperparameter("k", "neighbours read", "neighbours, k")] = None
    """Neighbours read; None: 16."""
    pairs: Count = 16
    """Pairs of train found for a sentence."""

    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        tokens = read["tokens"]
        if tokens.metrics.get("examples", STREAMS) != PAIRS_OF_SENTENCES:
            raise UsageError(f"{reading.spelled}: {tokens.reference} holds no pairs of sentences.")
        if not tokens.metrics["splits"].get(PAIRS_SPLIT, {}).get("tokens"):
            raise ArtifactError(f"{tokens.reference} has no split {PAIRS_SPLIT!r} whose pairs could be found.")
        numbers = doubling_cutoffs(MOST_NEIGHBORS) if self.k == "tune" else self.k or (DEFAULT_NEIGHBORS,)
        return reading.changed(
            {
                "key": reading.key or stored_key(read["model"]),
                "similarity": reading.similarity or default_similarity(read["model"], "l2"),
                "k": tuple(int(number) for number in numbers),
            }
        )
