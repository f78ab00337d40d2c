"""Sorted contexts compared with the text that they are of: each where a search for it ends, sharing what it shares."""

import numpy as np

from stages.suffixes.matches import SortedContexts

SAMPLE = 1 << 16
"""Contexts that are looked for; of more, some drawn at random."""


def wrong_contexts(contexts: SortedContexts) -> str | None:
    """Describe the contexts that are not where they belong; None: none that a sample shows.

    >>> from stages.suffixes.text import Text
    >>> text = Text.of(np.array([1, 0, 1, 0]), np.array([0, 4]), vocabulary=2)
    >>> right = SortedContexts.of(text)
    >>> wrong_contexts(right), wrong_contexts(SortedContexts(text, right.order[[0, 1, 3, 2]], right.shared))
    (None, '1 of 4 contexts are not where the text has them, the first that of token 1')
    """
    rows = len(contexts.order)
    drawn = np.arange(rows) if rows <= SAMPLE else np.random.default_rng(0).choice(rows, SAMPLE, replace=False)
    places = np.sort(drawn).astype(np.int64)
    found = contexts.locate(contexts.text, places)
    row = np.minimum(found.place, rows - 1)
    wrong = places[(contexts.order[row] != places) | (contexts.shared[row] != found.before)]
    if not len(wrong):
        return None
    what = f"{len(wrong):,} of {len(places):,} contexts are not where the text has them"
    return f"{what}, the first that of token {wrong[0]:,}"
