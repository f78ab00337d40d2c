"""Contexts sorted, and what neighbours in that order share.

Words of a few symbols are compared; of contexts that tie the next words are, and so on. A round costs what still ties,
and there are LONGEST / (symbols of a word) at most, so one token repeated a million times costs no more than that.
Shapes: m contexts that are sorted together.
"""

from typing import NamedTuple

import numpy as np

from stages.suffixes.text import LONGEST, Text


class Order(NamedTuple):
    """Places of tokens, by their contexts; equal ones by place.

    `places` int64 [m]. `shared` uint8 [m]: symbols that each context shares with the one before it, LONGEST at most;
    the first has 0.
    """

    places: np.ndarray
    shared: np.ndarray


def sort_contexts(text: Text, places: np.ndarray) -> Order:
    """Sort the contexts of some tokens; places int64 [m], rising. It takes 100 bytes a context.

    The contexts of "b a b a" are, backwards from each token, "|", "b|", "ab|" and "bab|", where | is the border.

    >>> sort_contexts(Text.of(np.array([1, 0, 1, 0]), np.array([0, 4]), vocabulary=2), np.arange(4))
    Order(places=array([0, 2, 1, 3]), shared=array([0, 0, 0, 1], dtype=uint8))
    """
    places, shared = places.copy(), np.zeros(len(places), np.uint8)
    open_, group, depth = np.arange(len(places)), np.zeros(len(places), np.int64), 0
    while len(open_):
        words = text.words(places[open_], depth)
        by = np.argsort(words, kind="stable") if depth == 0 else np.lexsort((words, group))
        places[open_], words = places[open_[by]], words[by]
        beside = np.flatnonzero(group[1:] == group[:-1]) + 1  # those with another of their group before them
        equal = text.equal_symbols(words[beside - 1], words[beside])
        depth += text.per_word
        ties = beside[equal == text.per_word]
        known = text.known[places[open_[ties]]].astype(np.int64)
        reached = depth - text.per_word + equal
        reached[equal == text.per_word] = np.minimum(known + 1, depth)
        shared[open_[beside]] = np.minimum(reached, LONGEST)
        ties = ties[known >= depth]
        still = np.zeros(len(open_), bool)
        still[ties] = still[ties - 1] = True
        first = still.copy()
        first[ties] = False
        open_, group = open_[still], np.cumsum(first)[still]
    return Order(places, shared)
