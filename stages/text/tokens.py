"""Reading a tokens artifact."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.errors import ArtifactError

if TYPE_CHECKING:
    import zarr


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


def open_split(tokens: "zarr.Group", split: str) -> TokenSplit:
    """One split of a group `tokens.zarr`. Raises ArtifactError, naming the splits there are, if it is missing."""
    if split not in tokens:
        there = ", ".join(sorted(tokens.group_keys()))
        raise ArtifactError(f"The tokens have no split {split!r}; they have: {there}.")
    group = tokens[split]
    return TokenSplit(*(group[name] for name in TokenSplit.__dataclass_fields__))  # type: ignore[index]
