"""Settings of the source `similar-pairs`, and the pairs that it reads. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.examples import PAIRS as PAIRS_OF_SENTENCES
from stages.examples import STREAMS
from stages.lineage.sources import PAIRS, PAIRS_SPLIT
from stages.memory.hyperparameter import (
    Choice,
    Count,
    Hyperparameter,
    ReadingOptions,
    doubling_cutoffs,
)
from stages.methods.defaults import default_similarity, stored_key
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput
from stages.retrieval.reading import Reading, SourceSettings
from stages.retrieval.sources.amounts import limited


class SentencePairs(MemoryInput):
    """The pairs of sentences of the tokens that are read; they are those of its training split."""

    role: ClassVar[str] = PAIRS
    words: ClassVar[str] = "the pairs"
    from_tokens: ClassVar[bool] = True

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact:
        return search.tokens

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact, PAIRS_SPLIT)

    def own_splits(self, artifact: Artifact, tokens: Artifact) -> set[str]:
        return {PAIRS_SPLIT}

    def check_exclusion(self, exclude: str | None, splits: Sequence[str]) -> None:
        if PAIRS_SPLIT in splits and exclude != "document":
            raise UsageError(
                f"--exclude {exclude}: no sentence of {PAIRS_SPLIT!r} finds its own pair: --exclude document."
            )


MOST_OF_PAIRS = 64
"""Neighbours that `tune` reads at most: a few pairs have few tokens."""
DEFAULT_OF_PAIRS = 16


class SimilarPairsSettings(SourceSettings):
    """How many pairs are found for a sentence, and how many of their tokens are read."""

    word: ClassVar[str] = "similar pairs"
    means: ClassVar[str] = "the k nearest tokens of the pairs whose sources BM25 finds"
    amount: ClassVar[str] = "k"
    finds_neighbors: ClassVar[bool] = True
    searches: ClassVar[bool] = True
    inputs: ClassVar[tuple[MemoryInput, ...]] = (SentencePairs(),)
    k: Annotated[Choice[Count] | None, Hyperparameter("k", "neighbours read", "neighbours, k")] = (
        None
    )
    """Neighbours read; None: 16."""
    pairs: Count = 16
    """Pairs of train found for a sentence."""

    @property
    def searches_steps(self) -> bool:
        return True

    def reason_alone(self) -> str | None:
        return "similar-pairs stands alone: no search finds other neighbours beside"

    @classmethod
    def amounts(cls, read: Mapping[str, Artifact], split: str) -> Mapping[str, int]:
        if PAIRS not in read:
            return {}
        return {"k": read[PAIRS].metrics["splits"][PAIRS_SPLIT]["tokens"]}

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        tokens = read["tokens"]
        if tokens.metrics.get("examples", STREAMS) != PAIRS_OF_SENTENCES:
            raise UsageError(f"{reading.spelled}: {tokens.reference} holds no pairs of sentences.")
        train = tokens.metrics["splits"].get(PAIRS_SPLIT, {})
        if not train.get("tokens"):
            raise ArtifactError(
                f"{tokens.reference} has no split {PAIRS_SPLIT!r} whose pairs could be found."
            )
        numbers = (
            doubling_cutoffs(MOST_OF_PAIRS) if self.k == "tune" else self.k or (DEFAULT_OF_PAIRS,)
        )
        similarity = reading.comparison.similarity or default_similarity(read["model"], "l2")
        return reading.changed(
            {
                "key": reading.comparison.key or stored_key(read["model"]),
                "similarity": similarity,
                "k": limited(numbers, train["tokens"]),
                "pairs": min(self.pairs, train["documents"]),
            }
        )
