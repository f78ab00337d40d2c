"""Settings of the sources `exact` and `exact-stream`, and the index that `exact` reads. Free of
torch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.lineage.indexes import EXACT, TEXT, exact_index, is_exact, text_splits
from stages.memory.hyperparameter import Choice, Count, Hyperparameter, ReadingOptions
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput
from stages.retrieval.reading import Past, Reading, SourceSettings
from stages.retrieval.sources.amounts import SIZE, limited, longest_split, split_tokens
from stages.suffixes.indexing import opened_bytes


class ExactIndex(MemoryInput):
    """The index of exact matches: the one that the command names, else that of the model's text."""

    role: ClassVar[str] = EXACT
    words: ClassVar[str] = "the index's text"

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact:
        named = search.claimed or search.recorded
        return exact_index(search.tokens, search.model, named, search.store)

    def claims(self, index: Artifact) -> bool:
        return is_exact(index)

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact.input(TEXT), str(artifact.config["split"]))

    def own_splits(self, artifact: Artifact, tokens: Artifact) -> set[str]:
        return text_splits(artifact, tokens)

    def memory_bytes(self, artifact: Artifact) -> int:
        return opened_bytes(int(artifact.metrics["rows"]))


MATCHES = Hyperparameter("matches read", axis="matches", grid=(1, 4, 16, 64, 256))
DEFAULT_MATCHES = 64


class ExactSettings(SourceSettings):
    """How many matches, in the text of an index."""

    word: ClassVar[str] = "matches"
    means: ClassVar[str] = (
        "what followed the longest matches of the context in the text of an index"
    )
    amount: ClassVar[str] = "matches"
    compares_keys: ClassVar[bool] = False
    scores_are_lengths: ClassVar[bool] = True
    searches: ClassVar[bool] = True
    inputs: ClassVar[tuple[MemoryInput, ...]] = (ExactIndex(),)
    matches: Annotated[Choice[Count] | None, MATCHES] = None
    """Matches read, the longest first; None: 64."""

    @property
    def hides_rows(self) -> bool:
        return True

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        for name in ("key", "similarity"):
            if getattr(reading.comparison, name) is not None and not reading.compares_keys:
                raise UsageError(
                    f"{reading.spelled}: exact matches compare tokens, no keys: leave {name} out."
                )
        numbers = MATCHES.grid if self.matches == "tune" else self.matches or (DEFAULT_MATCHES,)
        limit = longest_split(read, splits)
        if limit is not None and EXACT in read:
            # No context has more matches than its text has tokens.
            limit = max(limit, read[EXACT].metrics["rows"])
        return reading.changed({"matches": limited(numbers, limit)})


class ExactStreamSettings(ExactSettings):
    """The same in what was read so far: a cache of matches of all lengths."""

    word: ClassVar[str] = "matches in the past"
    means: ClassVar[str] = (
        "what followed the longest matches of the context in the last positions read"
    )
    searches: ClassVar[bool] = False
    inputs: ClassVar[tuple[MemoryInput, ...]] = ()
    past_amount: ClassVar[str | None] = "size"
    size: Annotated[Choice[Count] | None, replace(SIZE, example="")] = None
    """Positions back from the one that reads; None: all."""

    def past(self, reset: str) -> Past | None:
        return "stream"

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        longest = longest_split(read, splits)
        sizes = SIZE.grid if self.size == "tune" else self.size
        if sizes is None and longest is not None:
            sizes = (longest,)
        reading = super().resolve(reading, read, splits)
        if sizes is None:
            return reading

        sizes = limited(sizes, longest)
        is_choice_of_sizes_alone = (
            len(reading.value("matches")) == 1
            and len(reading.sources) == 1
            and not reading.per_context
        )
        if len(sizes) > 1 and not is_choice_of_sizes_alone:
            raise UsageError(
                f"{reading.spelled}: size is tuned of exact-stream alone, at one number of matches and one "
                f"{reading.weight_name} for all; give one size, or --memory exact-stream:size=tune,lambda=tune."
            )
        return reading.changed({"size": sizes})

    @classmethod
    def amounts(cls, read: Mapping[str, Artifact], split: str) -> Mapping[str, int]:
        return {"size": split_tokens(read, split)}
