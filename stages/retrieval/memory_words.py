"""What the memories of one row are called beside each other."""

from collections import Counter
from collections.abc import Iterable, Sequence

from stages.retrieval.sources import SOURCES


def memory_words(readings: Iterable[Sequence[str]]) -> list[str]:
    """Of the sources of each reading a word: `datastore`, `cache`; numbered where two are alike.

    >>> memory_words([["external"], ["long"]]), memory_words([["local", "long"], ["long"], ["long"]])
    (['datastore', 'cache'], ['window+cache', 'cache 1', 'cache 2'])
    """
    words = ["+".join(SOURCES.settings(source).word for source in sources) for sources in readings]
    of_a_kind, seen = Counter(words), Counter[str]()
    for place, word in enumerate(words):
        seen[word] += 1
        words[place] = word if of_a_kind[word] == 1 else f"{word} {seen[word]}"
    return words
