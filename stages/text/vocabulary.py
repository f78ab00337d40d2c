"""Words, letter case and vocabularies, each defined exactly as Hugging Face's tokenizers define it."""

import re
from bisect import bisect_right
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from stages.numbers import number, size
from stages.text.tokenizer import EOS, UNK

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

_WORD = re.compile(r"(?:\S|[\x1c-\x1f])+")
"""Python calls these four separators white space, Unicode does not."""


def words(text: str) -> list[str]:
    """Split text on Unicode white space, as the pre-tokenizer `WhitespaceSplit` does."""
    if "\x1c" in text or "\x1d" in text or "\x1e" in text or "\x1f" in text:
        return _WORD.findall(text)
    return text.split()


def lower(text: str) -> str:
    """Lower-case text character by character, as the normalizer `Lowercase` does."""
    return text.lower() if text.isascii() else str(_normalizer().normalize_str(text))


@cache
def _normalizer() -> "Normalizer":
    from tokenizers.normalizers import Lowercase

    return Lowercase()


def by_frequency(counts: Counter[str], limit: int | None, min_count: int = 1) -> dict[str, int]:
    """A vocabulary whose ids fall with count, ties in order of text.

    Args:
        counts: occurrences in training text; `<eos>` and `<unk>` are kept whatever theirs are.
        limit: the most types to keep; what is left out counts as `<unk>`.
        min_count: what types that are kept occur at least; those with fewer count as `<unk>` too.
    """
    special = {EOS: counts[EOS], UNK: counts[UNK]}
    ranked = sorted(counts.items() - special.items(), key=_rank)
    frequent = bisect_right(ranked, -min_count, key=lambda entry: -entry[1])
    kept = ranked[: frequent if limit is None else min(frequent, limit - len(special))]
    special[UNK] += sum(count for _, count in ranked[len(kept) :])
    return {text: id for id, (text, _) in enumerate(sorted([*kept, *special.items()], key=_rank))}


def _rank(entry: tuple[str, int]) -> tuple[int, str]:
    text, count = entry
    return -count, text


MANY_TYPES = 2**16
"""A vocabulary with more costs more than most models of its text."""
TRAINED_BYTES = 16
"""A weight in training: itself, its gradient and two moments, in float32."""


def vocabulary_cost(weights: int, scored: int, others: int) -> str:
    """Weights, memory and share of a step of a vocabulary, as a message says it.

    Args:
        weights: of the vocabulary, input and output.
        scored: those that score a token.
        others: weights of the rest of the model; each takes part in one product a token, as those of `scored` do.

    >>> vocabulary_cost(51_200_000, 51_200_000, 25_165_824)
    "51.2 million weights, 819.2 MB with gradients and moments, and 67% of a step's arithmetic"
    """
    share = scored / (scored + others)
    return (
        f"{number(weights / 1e6)} million weights, {size(weights * TRAINED_BYTES)} with gradients and moments, and "
        f"{share:.0%} of a step's arithmetic"
    )
