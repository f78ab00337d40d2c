"""Reading a tokens artifact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.errors import DataError

READ_AHEAD_IDS = 1 << 20
"""Ids read from storage at a time."""
SPLITS = ("train", "valid", "test")
"""Splits of tokenized text."""


@dataclass(frozen=True)
class TokenSplit:
    """The arrays of one split; slicing reads from storage."""

    ids: Any
    """uint16 or uint32 [T]."""
    doc_offsets: Any
    """int64 [D+1]: document i is the tokens [doc_offsets[i], doc_offsets[i+1])."""
    paragraph_ends: Any
    """int64 [P]: the token at which each paragraph ends, exclusive; the last is T."""
    paragraph_hashes: Any
    """uint64 [P]: BLAKE2b-64 of each paragraph's text without the white space around it."""


def open_split(tokens: Any, split: str) -> TokenSplit:
    """One split of a group `tokens.zarr`. Raises: ArtifactError if the group lacks it."""
    group = tokens[split]
    return TokenSplit(*(group[name] for name in TokenSplit.__dataclass_fields__))


def require_segment(tokens: int, length: int) -> None:
    """Check that a training split is as long as a segment.

    Raises: DataError if a training split of `tokens` tokens is shorter than one segment.
    """
    if tokens < length:
        raise DataError(
            f"The training split has {tokens} tokens, less than one segment of {length}; "
            "train on more text or with a smaller --segment-length."
        )


def start_id(metrics: Mapping[str, Any]) -> int:
    """The first input of a split, which predicts its first token: `<eos>`, or a pretrained model's
    start token.
    """
    return int(metrics.get("start_id", metrics["eos_id"]))
