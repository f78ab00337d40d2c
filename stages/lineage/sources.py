"""Splits from which a datastore's rows come, by its manifest and its list of sources. Free of
NumPy.

Only this module, and the code that opens the rows, depends on how a datastore was made.
"""

import json
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, TypeAdapter

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.manifest import InputRecord
from stages.errors import content_of
from stages.lineage.corpus import array_digests

SOURCES = "sources.json"
PAIRS = "pairs"
PAIRS_SPLIT = "train"
"""Role, in an evaluation, of tokens whose pairs of sentences are a memory, and the split with these
pairs.
"""


class RowSource(BaseModel):
    """A split from which rows of a datastore come, identified by the bytes of its ids.

    `ids`: digests of the files of its ids; `paragraphs`: of its paragraphs' hashes, None if not all
    of them are stored.
    """

    model_config = ConfigDict(frozen=True)

    tokens: InputRecord
    split: str
    ids: dict[str, str]
    paragraphs: dict[str, str] | None

    @classmethod
    def of(cls, tokens: Artifact, split: str) -> "RowSource":
        """A whole split."""
        return cls(
            tokens=tokens.record,
            split=split,
            ids=array_digests(tokens, f"{split}/ids"),
            paragraphs=array_digests(tokens, f"{split}/paragraph_hashes"),
        )

    def is_split(self, tokens: Artifact, split: str) -> bool:
        """Whether this is a split of an artifact, which may have been made again, or have another
        name.
        """
        return array_digests(tokens, f"{split}/ids") == self.ids


_SOURCES = TypeAdapter(list[RowSource])


def sources_of(datastore: Artifact) -> list[RowSource]:
    """The splits from which a datastore's rows come, each with at least one row, in the order of
    rows.
    """
    if not is_updated(datastore):
        return [RowSource.of(datastore.input("corpus"), datastore.config["split"])]
    with content_of(datastore.file(SOURCES)):
        return _SOURCES.validate_python(datastore.json(SOURCES))


def dump_sources(sources: Iterable[RowSource]) -> str:
    """The text of `sources.json`."""
    return json.dumps([source.model_dump() for source in sources], indent=2, sort_keys=True) + "\n"


def is_updated(datastore: Artifact) -> bool:
    """Whether a datastore was made from another one."""
    return PREVIOUS in datastore.manifest.inputs


def tokenizer_of(datastore: Artifact) -> Artifact:
    """A tokens artifact with the tokenizer of a datastore's values."""
    return (
        datastore.input("encoder").input("tokens")
        if is_updated(datastore)
        else datastore.input("corpus")
    )


def own_splits(datastore: Artifact, tokens: Artifact) -> set[str]:
    """The splits of a tokens artifact from which a datastore has rows, which so hold the answers.

    Splits are compared by the bytes of ids: the text may have been tokenized again, or have another
    name.
    """
    sources = sources_of(datastore)
    splits = set()
    for split in tokens.metrics["splits"]:
        if any(source.is_split(tokens, split) for source in sources):
            splits.add(split)
    return splits
