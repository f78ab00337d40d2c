"""Reading a tokens artifact."""

from dataclasses import dataclass
from typing import Any

SPLITS = ("train", "valid", "test")
"""Splits that text is tokenized as."""


@dataclass(frozen=True)
class TokenSplit:
    """The arrays of one split, each read as it is sliced."""

    ids: Any
    """uint16 or uint32 [T]."""
    doc_offsets: Any
    """int64 [D+1]: document i is the tokens [doc_offsets[i], doc_offsets[i+1])."""
    paragraph_ends: Any
    """int64 [P]: the token at which each paragraph ends, exclusive; the last is T."""
    paragraph_hashes: Any
    """uint64 [P]: BLAKE2b-64 of each paragraph's text without the white space around it."""


def open_split(tokens: Any, split: str) -> TokenSplit:
    """One split of a group `tokens.zarr`, which must have it. Raises: ArtifactError if it has not."""
    group = tokens[split]
    return TokenSplit(*(group[name] for name in TokenSplit.__dataclass_fields__))
