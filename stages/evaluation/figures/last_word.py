"""Scoring the last word of each passage alone, all its subwords, as LAMBADA asks for.

Source: Paperno et al. 2016 (LAMBADA, arXiv:1606.06031), section 3: perplexity and accuracy of the target word.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import DataError
from stages.examples.streams import READ_AHEAD_IDS
from stages.lineage.corpus import tokenizer_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LastWords:
    """Tokens [spans[p, 0], spans[p, 1]) of a split are the last word of passage p; int64 [P, 2], ascending."""

    spans: np.ndarray
    unknown: int = 0
    """Passages whose last word is not in the vocabulary: what is predicted of them is `<unk>`."""

    @property
    def passages(self) -> int:
        """Documents that have a word."""
        return len(self.spans)

    @property
    def tokens(self) -> int:
        """Subwords of all last words."""
        return int(np.diff(self.spans).sum())

    def scored(self, start: int, stop: int) -> np.ndarray:
        """Which tokens of [start, stop) are scored, bool [stop - start]."""
        edges = np.clip(self.spans.ravel(), start, stop)
        lengths = np.diff(edges, prepend=start, append=stop)
        return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)

    def wrong_passages(self, start: int, stop: int, correct: np.ndarray) -> list[int]:
        """Numbers of the passages with a wrong subword in tokens [start, stop), ascending.

        A word may lie in several ranges: its passage is wrong if any of them says so.

        Args:
            correct: bool [n], whether each scored token of the range has the highest probability, in order.
        """
        wrong = start + np.flatnonzero(self.scored(start, stop))[~correct]
        return np.unique(self._passage_of(wrong)).tolist()

    def _passage_of(self, tokens: np.ndarray) -> np.ndarray:
        """Number of the passage of each scored token, given by its place in the split."""
        return np.searchsorted(self.spans[:, 0], tokens, side="right") - 1

    def counted_unknown(self, ids: Any, unk: int) -> "LastWords":
        """The same with the number of last words that hold `<unk>`; ids [T], read in pieces."""
        found = [np.empty(0, np.int64)]
        for start in range(0, int(ids.shape[0]), READ_AHEAD_IDS):
            piece = np.asarray(ids[start : start + READ_AHEAD_IDS])
            unknown = (piece == unk) & self.scored(start, start + len(piece))
            found.append(self._passage_of(start + np.flatnonzero(unknown)))
        return replace(self, unknown=len(np.unique(np.concatenate(found))))


def find_last_words(tokens: Artifact, split: str) -> LastWords:
    """The last word of every document of a split that has one.

    Raises: UsageError if the tokenizer does not tell words apart; DataError if no document has a word.
    """
    from stages.text.words import last_words

    group: Any = tokens.zarr("tokens.zarr")[split]
    tokenizer = tokenizer_of(tokens)
    spans = last_words(group["ids"], group["doc_offsets"], tokenizer)
    spans = spans[spans[:, 0] < spans[:, 1]]
    if not len(spans):
        raise DataError(f"No document of {split} in {tokens.reference} has a word that could be scored.")
    unk = tokens.metrics.get("unk_id")
    words = LastWords(spans)
    return words if unk is None else words.counted_unknown(group["ids"], unk)


def is_best(log_probs: "Tensor", targets: "Tensor") -> "Tensor":
    """Whether each target has the highest probability, bool [n]; of equals the lowest id is the best.

    Args:
        log_probs: final distribution of each scored token, [n, V], natural log.
        targets: int64 [n].
    """
    return log_probs.argmax(dim=-1) == targets
