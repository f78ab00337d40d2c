"""Scoring the last word of each passage alone, all its subwords, as LAMBADA asks for.

Source: Paperno et al. 2016 (LAMBADA, arXiv:1606.06031), section 3: perplexity and accuracy of the target word.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LastWords:
    """Tokens [spans[p, 0], spans[p, 1]) of a split are the last word of passage p; int64 [P, 2], ascending."""

    spans: np.ndarray

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
        return [int(p) for p in np.unique(np.searchsorted(self.spans[:, 0], wrong, side="right") - 1)]


def find_last_words(tokens: Artifact, split: str) -> LastWords:
    """The last word of every document of a split that has one.

    Raises: UsageError if the tokenizer does not tell words apart; DataError if no document has a word.
    """
    from stages.text.given import open_tokenizer
    from stages.text.words import last_words

    group: Any = tokens.zarr("tokens.zarr")[split]
    tokenizer = open_tokenizer(tokens.file("tokenizer.json"))
    spans = last_words(group["ids"], group["doc_offsets"], tokenizer)
    spans = spans[spans[:, 0] < spans[:, 1]]
    if not len(spans):
        raise DataError(f"No document of {split} in {tokens.reference} has a word that could be scored.")
    return LastWords(spans)


def is_best(log_probs: "Tensor", targets: "Tensor") -> "Tensor":
    """Whether each target has the highest probability, bool [n]; of equals the lowest id is the best.

    Args:
        log_probs: final distribution of each scored token, [n, V], natural log.
        targets: int64 [n].
    """
    return log_probs.argmax(dim=-1) == targets
