"""How often each term is in each segment."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

BLOCK = 8192
"""Segments counted at a time."""


def term_counts(ids: Any, length: int, terms: int) -> csr_array:
    """Counts [S, V] of every whole segment of a split, in the smallest unsigned integers that hold `length`.

    Args:
        ids: token ids [T], an array or a Zarr array; S = T // length, segment i holds tokens i·length …
        length: tokens a segment.
        terms: size of the vocabulary, V.
    """
    segments = int(ids.shape[0]) // length
    starts = range(0, segments, BLOCK)
    blocks = [ids[start * length : min(start + BLOCK, segments) * length] for start in starts]
    return vstack([_count(np.asarray(block).reshape(-1, length), terms) for block in blocks], format="csr")


def uneven_counts(ids: Any, offsets: np.ndarray, terms: int) -> csr_array:
    """Counts [S, V] of segments of unequal length, in int32.

    Args:
        ids: token ids [T], an array or a Zarr array.
        offsets: int64 [S + 1], where each segment begins, and the end.
        terms: size of the vocabulary, V.

    >>> uneven_counts(np.array([1, 1, 0, 2]), np.array([0, 3, 4]), 3).toarray()
    array([[1, 2, 0],
           [0, 0, 1]], dtype=int32)
    """
    blocks = []
    for start in range(0, len(offsets) - 1, BLOCK):
        part = offsets[start : start + BLOCK + 1]
        rows = np.repeat(np.arange(len(part) - 1), np.diff(part))
        found = np.asarray(ids[int(part[0]) : int(part[-1])]).astype(np.int32)
        ones = np.ones(len(found), np.int32)
        blocks.append(csr_array((ones, (rows, found)), shape=(len(part) - 1, terms)))  # equal places are added up
    return vstack(blocks, format="csr")


def _count(segments: np.ndarray, terms: int) -> csr_array:
    """Counts [n, V] of segments [n, L]: a term of a row is a run of equal ids once the row is sorted."""
    ordered = np.sort(segments, axis=1).astype(np.int32)
    begins = np.ones(ordered.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    places = np.flatnonzero(begins)
    counts = np.diff(places, append=ordered.size).astype(np.min_scalar_type(segments.shape[1]))
    offsets = np.concatenate([[0], np.cumsum(begins.sum(axis=1))]).astype(np.int32)
    return csr_array((counts, ordered.ravel()[places], offsets), shape=(len(segments), terms))
