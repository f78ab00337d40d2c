"""A text that is no split of the corpus, in the shape of one, so that it is read as splits are."""

from collections.abc import Sequence

import numpy as np

from stages.artifacts.artifact import Artifact

PASSAGE = "passage"
"""Name of the split."""
LONGEST = 1 << 40
"""Tokens that no passage has."""


class Passage:
    """A growing row of tokens, one document, with the arrays that a split of a tokens artifact has."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._held = np.array([*ids, 0], np.int64)
        self._length = len(ids)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> np.ndarray:
        """`passage/ids` int64 [T] and `passage/doc_offsets` int64 [2]."""
        return {f"{PASSAGE}/ids": self.ids, f"{PASSAGE}/doc_offsets": np.array([0, self._length])}[name]

    @property
    def ids(self) -> np.ndarray:
        """All tokens, int64 [T]."""
        return self._held[: self._length]

    def append(self, id: int) -> None:
        """Add a token."""
        # Twice as long each time: n tokens are written in time n.
        if self._length == len(self._held):
            self._held = np.concatenate((self._held, np.zeros_like(self._held)))
        self._held[self._length] = id
        self._length += 1

    def cut(self, length: int) -> None:
        """Keep so many tokens."""
        self._length = length

    def put_last(self, id: int) -> None:
        """Overwrite the last token."""
        self._held[self._length - 1] = id


def with_passage(tokens: Artifact) -> Artifact:
    """A tokens artifact that also tells of a split `passage`, of any length."""
    splits = tokens.metrics["splits"] | {PASSAGE: {"tokens": LONGEST}}
    manifest = tokens.manifest.model_copy(update={"metrics": tokens.metrics | {"splits": splits}})
    return Artifact(tokens.store, tokens.path, manifest)
