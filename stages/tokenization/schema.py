"""Schema of `tokenize`: figures of splits and of the vocabulary, and the arrays of each split."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.artifacts.schema import Count, Expected, Figures, Schema, Share, anything, offsets
from stages.examples import EXAMPLES, STREAMS
from stages.examples.form import SplitForm, token_ids

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

Id = Annotated[int, Field(ge=0, lt=2**31)]
"""Id of a token; values of datastores and targets of scores are int32."""


class SplitFigures(Figures):
    """Metrics of one split."""

    tokens: Count
    documents: Count
    characters: Count
    bytes: Count
    words: Count
    paragraphs: Count | None = None
    unknown_rate: Share


class TokensFigures(Figures):
    """Metrics of tokens."""

    splits: dict[str, SplitFigures]
    vocabulary_size: Annotated[int, Field(gt=0, le=2**31)]
    eos_id: Id
    unk_id: Id | None = None
    start_id: Id = 0
    prefix_id: Id | None = None
    tokenizer: str
    examples: str = STREAMS
    """Kind of examples that a split is read as."""
    eos_after: Literal["line", "document", "never"]

    @model_validator(mode="after")
    def _as_the_kind_asks(self) -> Self:
        asked: SplitForm = EXAMPLES.settings(self.examples)
        for figures in self.splits.values():
            asked.figures.model_validate(figures.model_dump())
        return self


def split_arrays(artifact: "Artifact", name: str) -> Expected | None:
    """The arrays of `tokens.zarr/SPLIT`: those of text, and those of the kind of examples."""
    _, split, array = (*name.split("/", 2), "", "")[:3]
    recorded = artifact.metrics["splits"].get(split)
    if recorded is None:
        return None
    types, tokens = artifact.metrics["vocabulary_size"], recorded["tokens"]
    kind: SplitForm = EXAMPLES.settings(artifact.metrics.get("examples", STREAMS))
    if array in kind.arrays:
        return kind.arrays[array](recorded, types)
    paragraphs = (recorded.get("paragraphs"),)
    return {
        "ids": token_ids("tokens")(recorded, types),
        "doc_offsets": Expected((None,), ("int64",), offsets(tokens)),
        "paragraph_ends": Expected(paragraphs, ("int64",), offsets(tokens)),
        "paragraph_hashes": Expected(paragraphs, ("uint64",), anything),
    }.get(array)


TOKENS = Schema(TokensFigures, split_arrays)
