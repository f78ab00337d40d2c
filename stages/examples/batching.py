"""Batches: the order in which an epoch takes examples, and rows of unequal length padded at the
end.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

BY_LENGTH = 2
"""Separates these random draws from others with the same seed."""


def shuffled_order(count: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """Draw the examples of an epoch's batches, int64 [batches, size], from (seed, epoch).

    No example comes twice. The last ones of the permutation, too few for a batch, are left out.
    """
    permutation = np.random.default_rng([seed, epoch]).permutation(count)
    batches = count // size
    return permutation[: batches * size].reshape(batches, size)


def aligned_order(count: int, size: int) -> np.ndarray:
    """Give each row b of the batches one stream of examples, int64 [batches, size]; the same in
    every epoch.

    The split is cut into `size` streams of equal length. Examples after the last stream are left
    out.

    >>> aligned_order(7, 2)
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    batches = count // size
    return np.arange(size * batches).reshape(size, batches).T


def token_batches(sizes: np.ndarray, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence of examples into batches of at most `max_tokens` tokens, padding included, but at
    least one example.

    Args:
        sizes: tokens of the longest sequence of each example, int [count].
    Returns: (first, stop) of each batch: rows times the longest row is at most `max_tokens`, unless there
    is only one row.

    >>> list(token_batches(np.array([2, 3, 4, 4, 9]), max_tokens=8))
    [(0, 2), (2, 4), (4, 5)]
    """
    first = 0
    longest = 0
    for example, size in enumerate(sizes.tolist()):
        longest = max(longest, size)
        # All rows are padded to the longest one.
        if example > first and (example + 1 - first) * longest > max_tokens:
            yield first, example
            first = example
            longest = size
    if len(sizes):
        yield first, len(sizes)


def by_length(lengths: np.ndarray, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Order examples by (length, size), with ties in random order from the seed, int64 [count].

    Neighbours in this order need little padding.

    >>> by_length(np.array([3, 1, 3]), np.array([2, 9, 1]), seed=0).tolist()
    [1, 2, 0]
    """
    tie_order = np.random.default_rng([seed, BY_LENGTH]).permutation(len(lengths))
    # `lexsort` sorts by the last key first.
    return np.lexsort((tie_order, sizes, lengths))


def padded(sequences: Sequence[np.ndarray], filler: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of tokens as rows int64 [B, L], and which of their tokens count, bool [B, L]; at
    least one sequence.

    >>> rows, mask = padded([np.array([5, 6]), np.array([7])], filler=0)
    >>> rows.tolist(), mask.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]])
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    starts = np.cumsum(lengths) - lengths
    return padded_rows(np.concatenate(sequences), starts, lengths, filler)


def padded_rows(
    ids: Any, starts: np.ndarray, lengths: np.ndarray, filler: int
) -> tuple[np.ndarray, np.ndarray]:
    """Like `padded`, for sequences within one array, each with its start and a length of at least
    one.

    Args:
        ids: an array, or an object with the same indexing.

    >>> rows, mask = padded_rows(np.array([5, 6, 7]), np.array([1, 0]), np.array([2, 1]), filler=9)
    >>> rows.tolist(), mask.tolist()
    ([[6, 7], [5, 9]], [[True, True], [True, False]])
    """
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]
    places = starts[:, None] + columns
    # Padding reads index 0, which exists, and is then overwritten.
    index = np.where(mask, places, 0)
    rows = np.where(mask, ids[index], filler)
    return rows.astype(np.int64), mask
