"""The longest match of each scored token in the texts that were read before: which tokens are new, and which are not.

The match of a token ends with it. A token stands in a match of m tokens where one of that length covers it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.control import MOST_TOKENS, CountedText, counted_texts, digests_of
from stages.lineage.evaluation import datastores_read
from stages.lineage.exact import EXACT
from stages.lineage.pairs import PAIRS
from stages.suffixes.matches import SortedContexts
from stages.suffixes.order import sort_contexts
from stages.suffixes.text import LONGEST, Text, ranges
from stages.text.tokens import open_split

LENGTHS = (8, 13, 32)
"""Lengths whose shares are reported. 13 tokens are what Brown et al. 2020 (GPT-3), appendix C, call contaminated."""
NEW_BELOW = 13
"""New text stands in no match of so many tokens."""


@dataclass(frozen=True)
class Matched:
    """Tokens of a split of T that stand in a match of each of LENGTHS, bool [T]; and the texts that were matched."""

    covered: Mapping[int, np.ndarray]
    texts: Sequence[CountedText]

    @property
    def new(self) -> np.ndarray:
        """Whether each token stands in no match of NEW_BELOW tokens, bool [T]."""
        return ~self.covered[NEW_BELOW]

    def figures(self, counted: np.ndarray | slice) -> dict[str, Any]:
        """Shares of the tokens that count, JSON."""
        return {
            "shares": {str(length): float(inside[counted].mean()) for length, inside in self.covered.items()},
            "new_below": NEW_BELOW,
            "texts": [{"corpus": one.corpus, "split": one.split, "tokens": one.tokens} for one in self.texts],
        }


def find_matched(read: Mapping[str, Artifact], split: str) -> Matched | None:
    """Matches of a split in all texts that an evaluation reads, but for itself.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
    Returns: None where there is no such text, or more than MOST_TOKENS tokens of it.
    """
    datastores = [datastore for datastore, _ in datastores_read(read)]
    holders = [*datastores, *(read[role] for role in (EXACT, PAIRS) if role in read)]
    own = digests_of(read["tokens"], split)
    texts = [text for text in counted_texts(read["model"], holders) if text.ids != own]
    scored = open_split(read["tokens"].zarr("tokens.zarr"), split)
    ids, offsets = np.asarray(scored.ids[:]), np.asarray(scored.doc_offsets[:])
    if not texts or max(len(ids), sum(text.tokens for text in texts)) > MOST_TOKENS:
        return None
    vocabulary = int(read["tokens"].metrics["vocabulary_size"])
    matches = np.zeros(len(ids), np.int64)
    for text in texts:
        matches = np.maximum(matches, longest_matches(ids, offsets, *_opened(text), vocabulary))
    return Matched({length: in_match(matches, length) for length in LENGTHS}, texts)


def _opened(text: CountedText) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a text, and where its parts begin, int64 [D + 1]."""
    pieces = text.open()
    if not isinstance(text.held, tuple):
        return pieces.ids, np.asarray(text.held.doc_offsets[:])
    begins = np.zeros(0, np.int64) if pieces.first is None else np.unique(pieces.first)
    return pieces.ids, np.append(begins, len(pieces.ids))


def longest_matches(
    ids: np.ndarray, offsets: np.ndarray, known: np.ndarray, known_offsets: np.ndarray, vocabulary: int
) -> np.ndarray:
    """Tokens of the longest match that ends with each token of a text, in another text, int64 [T]; LONGEST at most.

    Args:
        ids, offsets: integers [T] and int64 [D + 1], the text that is looked for; matches end where documents begin.
        known, known_offsets: the same of the other text.

    >>> text, whole = np.array([1, 2, 3, 9, 2, 3]), np.array([0, 6])
    >>> longest_matches(text, whole, np.array([2, 3, 1, 2]), np.array([0, 4]), 10).tolist()
    [1, 2, 2, 0, 1, 2]
    """
    asked, held = _inclusive(ids, offsets, vocabulary), _inclusive(known, known_offsets, vocabulary)
    places, longest = np.arange(1, len(ids) + 1), np.zeros(len(ids), np.uint8)
    for part in ranges(len(known)):  # sorted apart, so that memory holds one
        contexts = SortedContexts(held, *sort_contexts(held, part + 1))
        longest = np.maximum(longest, contexts.locate(asked, places).longest)
    return np.minimum(longest, asked.known[places]).astype(np.int64)  # a border that both have is no token


def _inclusive(ids: np.ndarray, offsets: np.ndarray, vocabulary: int) -> Text:
    """A text in which place t + 1 has token t and those before it as its context, at ends of documents, too."""
    begins = np.repeat(offsets[:-1], np.diff(offsets))
    known = np.minimum(np.arange(1, len(ids) + 1) - begins, LONGEST)
    return Text(np.append(ids, 0).astype(np.uint32), np.append(0, known).astype(np.uint8), vocabulary)


def in_match(matches: np.ndarray, length: int) -> np.ndarray:
    """Whether each token stands in a match of so many tokens, bool [T].

    >>> in_match(np.array([0, 1, 2, 1]), 2).tolist()
    [False, True, True, False]
    """
    ends = np.flatnonzero(matches >= length)
    opened = np.bincount(ends - matches[ends] + 1, minlength=len(matches) + 1)
    return np.cumsum(opened - np.bincount(ends + 1, minlength=len(matches) + 1))[:-1] > 0
