"""Scripts in which words are not set apart by spaces."""

import re
from collections.abc import Sequence

from stages.metrics import LONG_WORD

_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
"""Runs of Thai and Lao, Burmese, Khmer, kana, Chinese characters; Korean sets its words apart."""
SHARE = 0.3
"""Share of the characters from which a text counts as written in a script."""
LONG_RUN = 3
"""Characters, on average, from which on runs are no words: where words were set apart beforehand they have two."""


def lacks_words(texts: Sequence[str]) -> bool:
    """Whether white space tells no words apart in texts: they are of such a script, or one long run of characters."""
    characters = sum(map(len, texts))
    runs = [len(run) for text in texts if not text.isascii() for run in _UNSPACED.findall(text)]
    unspaced = sum(runs) > max(SHARE * characters, LONG_RUN * len(runs))
    return unspaced or characters > LONG_WORD * sum(len(text.split()) for text in texts)
