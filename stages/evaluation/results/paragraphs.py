"""Tokens of a split that stand word for word in the text a model was trained on."""

from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact


def repeated_tokens(scored: Artifact, split: str, known: Artifact, known_split: str) -> np.ndarray:
    """Whether each token of a split lies in a paragraph that `known_split` has too, bool [T].

    Compares the hashes of whole paragraphs (maximal runs of lines that are not blank).
    """
    hashes = _read(scored, split, "paragraph_hashes")
    repeated = np.isin(hashes, _read(known, known_split, "paragraph_hashes"))
    ends = _read(scored, split, "paragraph_ends")
    return np.repeat(repeated, np.diff(ends, prepend=0))


def _read(tokens: Artifact, split: str, name: str) -> np.ndarray:
    array: Any = tokens.zarr("tokens.zarr")[f"{split}/{name}"]
    return np.asarray(array[:])
