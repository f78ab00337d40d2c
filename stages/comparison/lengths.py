"""How many words and characters each document, or paragraph, of a split has, counted from its tokens."""

from itertools import pairwise
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.lineage.corpus import tokenizer_of
from stages.reporting import Progress, unheard
from stages.text.tokens import open_split

TOKENS_AT_ONCE = 1 << 17
UNITS = ("word", "character")


def lengths(tokens: Artifact, split: str, offsets: np.ndarray, progress: Progress = unheard) -> dict[str, np.ndarray]:
    """Words and characters of the parts of a split, int64 [P] each, as tokenize counts them.

    Words are those between white space, plus one a line; the tokens of a word tokenizer are just these. Elsewhere
    tokens are turned back into text. A length is left out if it does not add up to that of the whole split: then
    the tokens do not tell (`<unk>` may stand for any text).

    Args:
        offsets: int64 [P + 1], ascending; part i is the tokens [offsets[i], offsets[i+1]).
    """
    counted = tokens.metrics["splits"][split]
    if tokens.metrics["tokenizer"] == "word":
        found = {"word": np.diff(offsets)}
    else:
        found = _decoded_lengths(tokens, split, offsets, progress)
    return {unit: parts for unit, parts in found.items() if parts.sum() == counted[f"{unit}s"]}


def _decoded_lengths(tokens: Artifact, split: str, offsets: np.ndarray, progress: Progress) -> dict[str, np.ndarray]:
    from stages.text.vocabulary import words
    from stages.text.words import Spelling, word_spelling

    def text_of(ids: np.ndarray, spelling: Spelling) -> str:
        ids = ids[ids != tokenizer.eos_id]
        blocks = [ids[start : start + TOKENS_AT_ONCE] for start in range(0, len(ids), TOKENS_AT_ONCE)]
        return b"".join(spelling.spell(block)[0].tobytes() for block in blocks).decode("utf-8", "replace")

    tokenizer = tokenizer_of(tokens)
    try:
        spelling = word_spelling(tokenizer)
    except UsageError:
        return {}
    ids: Any = np.asarray(open_split(tokens.zarr("tokens.zarr"), split).ids[:])
    parts = np.zeros((len(offsets) - 1, 2), np.int64)
    for number, (start, stop) in enumerate(pairwise(offsets)):
        text = text_of(ids[start:stop], spelling)
        unended = bool(text) and not text.endswith("\n")
        parts[number] = len(words(text)) + text.count("\n") + unended, len(text)
        progress(int(stop), int(offsets[-1]), "tokens turned into text")
    return dict(zip(UNITS, parts.T, strict=True))
