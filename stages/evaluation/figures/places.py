"""The scored tokens of a split, and their places: in the split, in a document, in a block of
tokens.

All are scored, or the last word of each passage alone, all its subwords, as LAMBADA asks for.
Source: Paperno et al. 2016 (LAMBADA, arXiv:1606.06031), section 3: perplexity and accuracy of the
target word.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import DataError
from stages.lineage.corpus import tokenizer_of
from stages.text.tokens import TokenSplit, open_split

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_BLOCK = 512
FEWEST_BLOCKS = 20
SHORTEST_GROUP = LONGEST_BLOCK
"""Minimum number of tokens of documents that are drawn together, if documents are parts of a
passage.
"""
PARTS = ("line", "blank-line")
"""Values of `tokenize --documents` that cut a passage into lines or paragraphs, which resemble
their neighbours.
"""


class CountedTokens(Protocol):
    """Tokens of a split that count in figures."""

    def scored(self, start: int, stop: int) -> np.ndarray:
        """Whether each token of [start, stop) is scored, bool [stop - start]."""


class AllTokens:
    """All tokens count; a reader with counted tokens also keeps their hidden states."""

    def scored(self, start: int, stop: int) -> np.ndarray:
        return np.ones(stop - start, bool)


@dataclass(frozen=True)
class LastWords:
    """Tokens [spans[p, 0], spans[p, 1]) of a split are the last word of passage p; int64 [P, 2],
    ascending.
    """

    spans: np.ndarray
    unknown: int = 0
    """Number of passages whose last word is not in the vocabulary, so that its target is `<unk>`.
    """

    @property
    def passages(self) -> int:
        """Number of passages: documents that have a word."""
        return len(self.spans)

    @property
    def tokens(self) -> int:
        """Number of subwords of all last words."""
        return int(np.diff(self.spans).sum())

    def scored(self, start: int, stop: int) -> np.ndarray:
        """Whether each token of [start, stop) is scored, bool [stop - start].

        >>> LastWords(np.array([[2, 4]])).scored(0, 5).tolist()
        [False, False, True, True, False]
        """
        edges = np.clip(self.spans.ravel(), start, stop)
        lengths = np.diff(edges, prepend=start, append=stop)
        return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)

    def wrong_passages(self, start: int, stop: int, correct: np.ndarray) -> list[int]:
        """Numbers of the passages with a wrong subword in tokens [start, stop), ascending.

        A word may be cut by ranges: its passage is wrong if it is wrong in any of them.

        Args:
            correct: bool [n], whether each scored token of the range has the highest probability,
            in order.
        """
        wrong = start + np.flatnonzero(self.scored(start, stop))[~correct]
        return np.unique(self._passage_of(wrong)).tolist()

    def _passage_of(self, tokens: np.ndarray) -> np.ndarray:
        """Number of the passage of each scored token, from its place in the split."""
        return np.searchsorted(self.spans[:, 0], tokens, side="right") - 1

    def counted_unknown(self, ids: np.ndarray, unk: int) -> "LastWords":
        """The same last words, with the number of those that contain `<unk>`; `ids`: integers [T]."""
        unknown = np.flatnonzero((ids == unk) & self.scored(0, len(ids)))
        return replace(self, unknown=len(np.unique(self._passage_of(unknown))))


def counted_tokens(words: LastWords | None, start: int, stop: int) -> Any:
    """Index of the tokens of [start, stop) that count: those of last words, or all of them."""
    return slice(None) if words is None else words.scored(start, stop)


def find_last_words(tokens: Artifact, split: str) -> LastWords:
    """The last word of every document of a split; documents without a word are left out.

    Raises: UsageError if the tokenizer does not separate words; DataError if no document has a
    word.
    """
    from stages.text.words import last_words

    group: Any = tokens.zarr("tokens.zarr")[split]
    tokenizer = tokenizer_of(tokens)
    spans = last_words(group["ids"], group["doc_offsets"], tokenizer)
    spans = spans[spans[:, 0] < spans[:, 1]]
    if not len(spans):
        raise DataError(
            f"No document of {split} in {tokens.reference} has a word that could be scored."
        )
    unk = tokens.metrics.get("unk_id")
    words = LastWords(spans)
    return words if unk is None else words.counted_unknown(np.asarray(group["ids"][:]), unk)


def is_best(log_probs: "Tensor", targets: "Tensor") -> "Tensor":
    """Whether each target has the highest probability, bool [n]; the lowest id wins a tie.

    Args:
        log_probs: final distribution of each scored token, [n, V], natural log.
        targets: int64 [n].

    >>> import torch
    >>> is_best(torch.tensor([[0.5, 0.5], [0.2, 0.8]]).log(), torch.tensor([1, 1])).tolist()
    [False, True]
    """
    return log_probs.argmax(dim=-1) == targets


@dataclass(frozen=True)
class Places:
    """The places of a split's scored tokens."""

    split: TokenSplit
    doc_offsets: np.ndarray
    """int64 [D + 1]."""
    chosen: np.ndarray | None
    """int64 [n], ascending; None: every token is scored."""

    @property
    def tokens(self) -> int:
        """Number of tokens of the split, scored or not."""
        return int(self.doc_offsets[-1])

    def __len__(self) -> int:
        return self.tokens if self.chosen is None else len(self.chosen)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Places in the split of scored tokens [start, stop), int64."""
        return np.arange(start, stop) if self.chosen is None else self.chosen[start:stop]

    def documents(self, places: np.ndarray) -> np.ndarray:
        """The document of each place, int64 [n]."""
        return np.searchsorted(self.doc_offsets, places, side="right") - 1

    def positions(self, places: np.ndarray) -> np.ndarray:
        """Number of tokens before each place in its document, int64 [n]."""
        return places - self.doc_offsets[self.documents(places)]

    def documents_with_tokens(self) -> int:
        """Number of documents with a scored token."""
        if self.chosen is None:
            return int(np.count_nonzero(np.diff(self.doc_offsets)))
        return len(np.unique(self.documents(self.chosen)))


def scored_places(tokens: Artifact, split: str, counted: str) -> Places:
    """The places of all tokens of a split, or of its documents' last words (`last-word`)."""
    opened = open_split(tokens.zarr("tokens.zarr"), split)
    if counted == "all":
        return places_of(opened, None)
    return places_of(opened, find_last_words(tokens, split))


def places_of(split: TokenSplit, words: LastWords | None) -> Places:
    """The places of all tokens of a split, or of some last words."""
    doc_offsets = np.asarray(split.doc_offsets[:])
    if words is None:
        return Places(split, doc_offsets, None)
    return Places(split, doc_offsets, np.flatnonzero(words.scored(0, int(doc_offsets[-1]))))


@dataclass(frozen=True)
class Units:
    """Units of the bootstrap: documents, groups of them, or blocks of `block_tokens` consecutive
    tokens of the split.

    `groups`: the first document of each group, then the number of documents, int64 [G + 1]; None:
    no groups.
    """

    places: Places
    block_tokens: int | None
    groups: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of units of the split, with or without a scored token."""
        if self.block_tokens is None:
            return len(self.places.doc_offsets if self.groups is None else self.groups) - 1
        return -(-self.places.tokens // self.block_tokens)

    def of(self, places: np.ndarray) -> np.ndarray:
        """The unit of each place, int64 [n]."""
        if self.block_tokens is not None:
            return places // self.block_tokens
        documents = self.places.documents(places)
        return (
            documents
            if self.groups is None
            else np.searchsorted(self.groups, documents, side="right") - 1
        )

    def facts(self, count: int) -> dict[str, Any]:
        """Description of the units in a comparison; `count` of them have a scored token."""
        if self.groups is not None:
            return {"unit": "group", "block_tokens": SHORTEST_GROUP, "units": count}
        unit = "document" if self.block_tokens is None else "block"
        return {"unit": unit, "block_tokens": self.block_tokens, "units": count}


def units_of(places: Places, block_tokens: int | None, documents: str | None = None) -> Units:
    """Documents as units; or blocks, if their length is given or all scored tokens are in one
    document.

    If no length is given, blocks have LONGEST_BLOCK tokens, or fewer to make FEWEST_BLOCKS of them.
    Documents that are parts of a passage resemble their neighbours. So they are drawn in groups of
    at least SHORTEST_GROUP tokens.

    Args:
        documents: kind of document, as in `tokenize --documents`.
    """
    if block_tokens is None and places.documents_with_tokens() == 1:
        block_tokens = min(LONGEST_BLOCK, max(1, places.tokens // FEWEST_BLOCKS))
    if block_tokens is None and are_parts(places, documents):
        return Units(places, None, grouped(places.doc_offsets))
    return Units(places, block_tokens)


def are_parts(places: Places, documents: str | None) -> bool:
    """Whether documents are parts of a passage, and too short to be drawn alone; False if last
    words are scored.
    """
    return (
        documents in PARTS
        and places.chosen is None
        and len(grouped(places.doc_offsets)) < len(places.doc_offsets)
    )


def grouped(offsets: np.ndarray) -> np.ndarray:
    """The first part of each group of at least SHORTEST_GROUP tokens, then the number of parts,
    int64 [G + 1].

    Args:
        offsets: the token at which each part begins, then the end of the last, int64 [P + 1].

    >>> grouped(np.array([0, 300, 600, 900, 1200])).tolist()
    [0, 2, 4]
    """
    first = [0]
    last = len(offsets) - 1
    while True:
        after = int(np.searchsorted(offsets, offsets[first[-1]] + SHORTEST_GROUP))
        if after >= last or offsets[last] - offsets[after] < SHORTEST_GROUP:
            return np.array([*first, last])
        first.append(after)
