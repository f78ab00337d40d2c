"""Passages of a text, each inside one document."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Passages:
    """Consecutive ranges of a text's tokens; passage i is tokens [bounds[i], bounds[i + 1])."""

    bounds: np.ndarray
    """int64 [P + 1]."""
    doc_offsets: np.ndarray
    """Where documents start, and the end of the text, int64 [D + 1]."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The passage of each token, int64 in the shape of `rows`; -1 stays -1."""
        numbers: np.ndarray = np.searchsorted(self.bounds, rows, side="right") - 1
        return np.where((rows < 0) | (rows >= self.bounds[-1]), -1, numbers)

    def documents(self, numbers: np.ndarray) -> np.ndarray:
        """The document of each passage, int64 in the shape of `numbers`."""
        starts = self.bounds[numbers]
        documents: np.ndarray = np.searchsorted(self.doc_offsets, starts, side="right") - 1
        return documents

    def overlapping(self, rows: np.ndarray) -> np.ndarray:
        """Ranges of passages that share a token with ranges of tokens.

        Args:
            rows: ranges [start, stop), int64 [n, 2], none empty.
        Returns: ranges of passages [first, last), int64 [n, 2].

        >>> passages = Passages(np.array([0, 3, 5, 9]), np.array([0, 5, 9]))
        >>> passages.overlapping(np.array([[2, 4], [5, 6]])).tolist()
        [[0, 2], [2, 3]]
        """
        first = np.searchsorted(self.bounds, rows[:, 0], side="right") - 1
        last = np.searchsorted(self.bounds, rows[:, 1], side="left")
        return np.stack((first, last), axis=1)


def cut_passages(doc_offsets: np.ndarray, paragraph_ends: np.ndarray, longest: int) -> Passages:
    """Passages of at most `longest` tokens, cut where documents end and, if possible, at blank
    lines.

    A paragraph joins the one before it while both fit. A longer one is cut into pieces.

    Args:
        doc_offsets: int64 [D + 1], where documents start, and the end of the text.
        paragraph_ends: int64 [P], the token at which each paragraph ends, exclusive.

    Two documents, of paragraphs of 2, 2 and 3 tokens, and of one of 5:

    >>> documents, paragraphs = np.array([0, 7, 12]), np.array([2, 4, 7, 12])
    >>> cut_passages(documents, paragraphs, longest=4).bounds.tolist()
    [0, 4, 7, 11, 12]
    """
    total = int(doc_offsets[-1])
    document_ends = set(doc_offsets.tolist())
    # A document ends a paragraph, too.
    ends = document_ends.union(paragraph_ends.tolist()) - {0}
    bounds = [0]
    paragraph_start = 0
    for end in sorted(ends):
        if end - bounds[-1] > longest:
            # The paragraph does not fit behind those before it: they make a passage.
            _append(bounds, paragraph_start)
        # A paragraph that is too long by itself is cut; its rest may be joined by the next one.
        while end - bounds[-1] > longest:
            bounds.append(bounds[-1] + longest)

        if end in document_ends:
            _append(bounds, end)
        paragraph_start = end
    _append(bounds, total)
    return Passages(np.array(bounds, np.int64), doc_offsets)


def _append(bounds: list[int], bound: int) -> None:
    """Append a bound, unless it is the last one already."""
    if bound > bounds[-1]:
        bounds.append(bound)
