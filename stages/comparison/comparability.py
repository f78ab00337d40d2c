"""Whether two reports are of the same tokens, or at least of the same text."""

from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.evaluation.figures.token_scores import TokenScores
from stages.lineage.corpus import array_digests, tokenizer_digest
from stages.text.tokens import TokenSplit, open_split

PARAGRAPHS_AT_ONCE = 1 << 20
LENGTHS = ("documents", "paragraphs", "characters", "bytes", "words")


def same_tokens(a: TokenScores, b: TokenScores) -> bool:
    """Whether both score the same tokens; False: tokens of another tokenizer, of the same text.

    Raises: ArtifactError, naming both reports, if splits, scored tokens or texts are not the same.
    """
    for name, of_a, of_b in (("splits", a.split, b.split), ("scored tokens", a.counted, b.counted)):
        if of_a != of_b:
            raise ArtifactError(
                f"{a.report.reference} and {b.report.reference} cannot be compared: their {name} are {of_a!r} and "
                f"{of_b!r}. Evaluate both on the same."
            )
    if _same_bytes(a.tokens, b.tokens, a.split):
        _require_as_many(a, b)
        return True
    _require_same_text(a, b)
    return False


def _same_bytes(a: Artifact, b: Artifact, split: str) -> bool:
    """Whether ids, documents and tokenizer are the same; other splits may differ."""
    if a.record == b.record:
        return True
    return tokenizer_digest(a) == tokenizer_digest(b) and array_digests(a, split) == array_digests(b, split)


def _require_as_many(a: TokenScores, b: TokenScores) -> None:
    if len(a) != len(b):
        raise ArtifactError(
            f"{a.report.reference} scores {len(a):,} tokens of {a.split}, {b.report.reference} {len(b):,}: "
            "evaluate both on the same."
        )


def _require_same_text(a: TokenScores, b: TokenScores) -> None:
    difference = _text_difference(a.tokens, b.tokens, a.split)
    if difference is not None:
        raise ArtifactError(
            f"{a.report.reference} is of {a.tokens.reference}, {b.report.reference} of {b.tokens.reference}: other "
            f"tokens, and not of the same text either, since {difference}. Evaluate both on the same text, cut into "
            "the same documents."
        )


def _text_difference(a: Artifact, b: Artifact, split: str) -> str | None:
    """How the text of a split differs, in words; None if it is the same, paragraph by paragraph.

    Text was counted and hashed before it was tokenized: neither letter case nor vocabulary has a part in it.
    """
    for name in LENGTHS:
        of_a, of_b = (tokens.metrics["splits"][split][name] for tokens in (a, b))
        if of_a != of_b:
            return f"{split} has {of_a:,} {name} in the one and {of_b:,} in the other"
    opened_a, opened_b = (open_split(tokens.zarr("tokens.zarr"), split) for tokens in (a, b))
    other = _first_other(opened_a.paragraph_hashes, opened_b.paragraph_hashes)
    if other is not None:
        return f"paragraph {other} of {split} (counted from 0) reads differently"
    if not np.array_equal(_document_ends(opened_a), _document_ends(opened_b)):
        return f"{split} is cut into documents elsewhere"
    return None


def _first_other(a: Any, b: Any) -> int | None:
    """The first row in which two arrays of one length differ."""
    for start in range(0, int(a.shape[0]), PARAGRAPHS_AT_ONCE):
        stop = start + PARAGRAPHS_AT_ONCE
        other = np.flatnonzero(np.asarray(a[start:stop]) != np.asarray(b[start:stop]))
        if len(other):
            return start + int(other[0])
    return None


def _document_ends(split: TokenSplit) -> np.ndarray:
    """The paragraph with which each document ends, int64 [D]."""
    return np.searchsorted(np.asarray(split.paragraph_ends[:]), np.asarray(split.doc_offsets[1:]))
