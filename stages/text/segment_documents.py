"""Which documents the segments of a split hold parts of."""

import numpy as np


def document_spans(doc_offsets: np.ndarray, length: int, segments: int) -> np.ndarray:
    """The first and the last document that each segment holds a token of, int64 [S, 2].

    Args:
        doc_offsets: int64 [D + 1]: document i is the tokens [doc_offsets[i], doc_offsets[i+1]).
        length: tokens a segment; segment i begins at token i · length.

    Documents of three and five tokens, segments of two: the second holds the end of one and the start of the other.

    >>> document_spans(np.array([0, 3, 8]), length=2, segments=4).tolist()
    [[0, 0], [0, 1], [1, 1], [1, 1]]
    """
    ends = np.arange(segments)[:, None] * length + [0, length - 1]
    return (np.searchsorted(doc_offsets, ends, side="right") - 1).astype(np.int64)


def sharing(spans: np.ndarray) -> np.ndarray:
    """The segments [start, stop) that hold parts of a document of each one's, itself among them; int64 [S, 2].

    >>> sharing(np.array([[0, 0], [0, 1], [1, 1], [1, 1]])).tolist()
    [[0, 2], [0, 4], [1, 4], [1, 4]]
    """
    first, last = spans.T
    return np.stack([np.searchsorted(last, first, side="left"), np.searchsorted(first, last, side="right")], axis=1)


def same_document(spans: np.ndarray, order: np.ndarray) -> float:
    """Share of the steps of an order between segments that hold parts of the same document."""
    before, after = spans[order[:-1]], spans[order[1:]]
    return float(((before[:, 0] <= after[:, 1]) & (after[:, 0] <= before[:, 1])).mean())
