"""Windows and the tokens that they score, by one rule for validation, datastores, queries and
evaluation.

Inputs of a split are `<eos>`, x_0 … x_{T-2}, so input i predicts token i. Window w reads inputs
wS … wS+L-1 (the last is shorter); each token is scored once, in the first window that contains it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stages.errors import UsageError


@dataclass(frozen=True)
class Window:
    """Reads inputs [start, stop) and scores tokens [scored_from, stop)."""

    start: int
    stop: int
    scored_from: int


def windows(
    total: int, context: int, stride: int, start: int = 0, stop: int | None = None
) -> list[Window]:
    """The windows of a split of `total` tokens that score a token in [start, stop), in order.

    The windows do not depend on the range. So a token has the same inputs before it in every range
    that contains it: at least context - stride, except in the first window.

    Args:
        total: tokens of the split.
        context: inputs per window, L.
        stride: inputs between the starts of two windows, S; 1 <= S <= L.
        start, stop: the range of tokens to score; by default the whole split.
    Raises: UsageError if the stride is not in 1 … context, or the range is not inside the split.

    Seven tokens, windows of four inputs that begin two apart: the second scores tokens that the
    first did not.

    >>> for w in windows(7, context=4, stride=2):
    ...     print(f"reads {w.start}-{w.stop - 1}, scores {w.scored_from}-{w.stop - 1}")
    reads 0-3, scores 0-3
    reads 2-5, scores 4-5
    reads 4-6, scores 6-6
    >>> windows(7, context=4, stride=2, start=5, stop=6)
    [Window(start=2, stop=6, scored_from=4)]
    """
    stop = total if stop is None else stop
    if not 1 <= stride <= context:
        raise UsageError(f"The stride is {stride}; it must be from 1 to the context, {context}.")
    if not 0 <= start <= stop <= total:
        raise UsageError(f"Tokens {start} to {stop} are not inside a split of {total}.")
    if start == stop:
        return []

    def scoring_window(token: int) -> int:
        """Number of the window that scores a token: the first that reaches the token's own input.

        Window w reads inputs up to w·S + L - 1. So w is the ceiling of (token - L + 1) / S.
        """
        return max(0, -(-(token - context + 1) // stride))

    scoring = []
    first_window = scoring_window(start)
    last_window = scoring_window(stop - 1)
    for number in range(first_window, last_window + 1):
        window_start = number * stride
        window_stop = min(window_start + context, total)
        # The first window scores all its tokens, each other one the last `stride`.
        scored_from = window_start + context - stride if number else 0
        scoring.append(Window(window_start, window_stop, scored_from))
    return scoring


def document_windows(
    offsets: np.ndarray, context: int, stride: int, start: int, stop: int
) -> list[Window]:
    """Like `windows`, but windows start anew at every document.

    A document's first input is the token before it (`<eos>` for the first document).

    Args:
        offsets: int [D + 1], where documents start, and the end of the split.

    Documents of three and of two tokens:

    >>> document_windows(np.array([0, 3, 5]), 2, 2, 0, 5)[1:]
    [Window(start=2, stop=3, scored_from=2), Window(start=3, stop=5, scored_from=3)]
    """
    scoring = []
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    for begin, end in pairwise(offsets[first : last + 1].tolist()):
        # Windows of a document count from its first token.
        from_token = max(start, begin) - begin
        to_token = min(stop, end) - begin
        for window in windows(end - begin, context, stride, from_token, to_token):
            scoring.append(
                Window(
                    start=begin + window.start,
                    stop=begin + window.stop,
                    scored_from=begin + window.scored_from,
                )
            )
    return scoring


def own_windows(
    context: int, start: int, stop: int, offsets: np.ndarray | None = None
) -> list[Window]:
    """A window for each token of [start, stop) with the last `context` inputs before it.

    They equal those of `windows` with a stride of 1, except for the first tokens of a split: each
    has its own window.

    Args:
        offsets: int [D + 1], where documents start, if windows must stay within a document.

    >>> own_windows(3, 1, 5)[-2:]
    [Window(start=1, stop=4, scored_from=3), Window(start=2, stop=5, scored_from=4)]
    """
    tokens = np.arange(start, stop)
    document_starts: np.ndarray | int = 0
    if offsets is not None:
        document_starts = offsets[np.searchsorted(offsets, tokens, side="right") - 1]
    starts = np.maximum(document_starts, tokens - context + 1)
    return [
        Window(first, token + 1, token)
        for first, token in zip(starts.tolist(), tokens.tolist(), strict=True)
    ]


def window_starts(scoring: Sequence[Window], start: int, stop: int) -> np.ndarray:
    """First input of the window that scores each token of [start, stop), int64 [stop - start].

    Args:
        scoring: the windows that score these tokens, in order.

    >>> window_starts([Window(0, 3, 0), Window(2, 5, 3)], 1, 5).tolist()
    [0, 0, 2, 2]
    """
    counts = [min(stop, w.stop) - max(start, w.scored_from) for w in scoring]
    return np.repeat(np.array([w.start for w in scoring], np.int64), counts)


def positions_back(offsets: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Number of tokens of the same document before each place of a split, int64 in the shape of
    `places`.

    Args:
        offsets: int [D + 1], where documents start, and the end of the split.

    >>> positions_back(np.array([0, 3, 5]), np.arange(5)).tolist()
    [0, 1, 2, 0, 1]
    """
    back: np.ndarray = places - offsets[np.searchsorted(offsets, places, side="right") - 1]
    return back.astype(np.int64)
