"""Stage tokenize: text -> tokens.

The text is read once, as a stream, into a spool of shards of about 1 MB. The tokenizer is made from
the shards of train; for words, its shards are part of the work. Then each shard is encoded
separately, and the ids of each split are joined. Memory holds one shard and the vocabulary,
whatever the size of the corpus. The disk holds the text, and its ids twice, until the artifact is
published.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from stages.artifacts.artifact import Artifact
from stages.artifacts.schema import Count, Expected, Figures, Schema, Share, anything, offsets
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.examples import EXAMPLES, STREAMS
from stages.examples.form import SplitForm, token_ids
from stages.registry import load
from stages.text.config import TokenizeConfig
from stages.tokenization.size_warnings import warn_of_shared_files

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
    """Kind of examples."""
    eos_after: Literal["line", "document", "never"]

    @model_validator(mode="after")
    def _as_the_kind_asks(self) -> Self:
        form: SplitForm = EXAMPLES.settings(self.examples)
        for figures in self.splits.values():
            form.figures.model_validate(figures.model_dump())
        return self


def split_arrays(artifact: Artifact, name: str) -> Expected | None:
    """Expected form of an array of `tokens.zarr/SPLIT`, common to all text or specific to the kind
    of examples.
    """
    _, split, array = (*name.split("/", 2), "", "")[:3]
    recorded = artifact.metrics["splits"].get(split)
    if recorded is None:
        return None
    types = artifact.metrics["vocabulary_size"]
    tokens = recorded["tokens"]
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


class Tokenize(Stage[TokenizeConfig]):
    """Turns text files into ids in Zarr and a `tokenizer.json`."""

    name = "tokenize"
    kind = "tokens"
    Config = TokenizeConfig
    schema = TOKENS

    def inputs(self, config: TokenizeConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        artifacts: Inputs = load("stages.tokenization.sources:find_inputs")(
            config, references, store
        )
        return artifacts

    def resolve(
        self, config: TokenizeConfig, inputs: Inputs, execution: Execution
    ) -> TokenizeConfig:
        warn_of_shared_files(inputs, execution.reporter)
        resolve = load("stages.tokenization.sources:resolve_automatic")
        return config.model_copy(update=resolve(config, inputs, execution.reporter))
