"""Figures of merit of a scored split, from its summed negative log-likelihood, and of a training
run.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

LARGEST_WORD_PERPLEXITY = 1e6
"""Above any vocabulary of words: such "words" are whole sentences."""
MOST_PASSES = 8
"""More passes over a small text help little, or harm. The first four are almost as good as new
text, later ones less and less (Muennighoff et al. 2023, arXiv:2305.16264). The preset `tiny` on a
novel of 131,000 tokens has a validation perplexity of 54.7 after 4 passes, 51.2 after 8 and 52.5
after 16; on 42,000 tokens of that novel 30.2 after 8 and 32.0 after 16; on tinyshakespeare
(353,000) 49.5 after 4, 42.1 after 8."""
FEW_TOKENS = 100
"""With fewer tokens, a perplexity is mostly luck. Losses of tokens have a standard deviation of
about 2.3 nats. So the 95% interval for a hundred tokens goes from two thirds to one and a half of
the perplexity."""
TOO_FEW_TOKENS = 10
"""Number of tokens below which a table shows no figure: a single rare token could give it any
value.
"""
FEW_NOTE = f"in parentheses: of fewer than {FEW_TOKENS} tokens, mostly luck"
"""Note of tables about figures of fewer than FEW_TOKENS tokens."""
FEWEST_UNITS = 6
"""Minimum number of units for an interval by resampling. With fewer, it is little more than their
minimum and maximum, and far too narrow. Of three units, one sample in 27 is only the minimum; a 95%
interval cuts off less at each end."""
NEARLY = 0.9
"""Share of MOST_PASSES that counts as all of them: passes read whole batches, and so omit part of a
short text.
"""
FORWARDS = 3.0
"""Time of a token that is learned, in units of reading it: the way back takes two ways forth (Kaplan
et al. 2020, arXiv:2001.08361, section 2.1).
"""
LONG_WORD = 25
"""Mean word length in characters above that of any language's prose: German has 6, Finnish 8."""


class Counts(NamedTuple):
    """Length of a scored text in each unit; 0: unknown."""

    tokens: int
    characters: int
    bytes: int
    words: int

    @classmethod
    def of(cls, split: dict[str, Any]) -> "Counts":
        """Counts from the metrics that tokenize wrote for a split."""
        return cls(*(int(split[unit]) for unit in cls._fields))


def figures(nll: float, counts: Counts) -> dict[str, float | None]:
    """Figures of a split whose tokens have `nll` nats in total; None for a figure that is not
    finite.

    The figure `nll` is the mean in nats per token, perplexity its exponential; bits per character
    and per byte refer to the text before tokenization; word perplexity is exp(nats per word).
    """
    return {
        "nll": finite(nll / counts.tokens),
        "perplexity": perplexity(nll, counts.tokens),
        "bits_per_character": _share(nll / math.log(2), counts.characters),
        "bits_per_byte": _share(nll / math.log(2), counts.bytes),
        "word_perplexity": perplexity(nll, counts.words),
    }


def shown_word_perplexity(
    value: float | None, bits_per_character: float | None = None
) -> float | None:
    """A meaningful word perplexity; None for one above any vocabulary, as for text without spaces.

    Args:
        value: exp(nats per word).
        bits_per_character: of the same text; it also gives the mean length of words.
    """
    if value is None or value > LARGEST_WORD_PERPLEXITY:
        return None
    characters = math.log(value) / (bits_per_character * math.log(2)) if bits_per_character else 0
    return value if characters <= LONG_WORD else None


def perplexity(nll: float, units: int) -> float | None:
    """exp(`nll` / `units`), with `nll` in nats; None if there are no units or the result is too
    large.
    """
    mean = _share(nll, units)
    try:
        return None if mean is None else finite(math.exp(mean))
    except OverflowError:
        return None


def _share(total: float, units: int) -> float | None:
    return finite(total / units) if units else None


def diverged(perplexity: float | None, vocabulary: int) -> bool:
    """Whether a perplexity is not a finite number, or worse than that of a uniform guess among
    `vocabulary` tokens.
    """
    return perplexity is None or perplexity > vocabulary


def finite(number: float) -> float | None:
    """The number, or None if it is not finite, since JSON has no nan or infinity."""
    return number if math.isfinite(number) else None


def undertrained(figures: Mapping[str, Any]) -> bool:
    """Whether a longer run would have given a better model, by `passes` and `still_falling` in its
    metrics.

    At the end of a run the learning rate falls, and the loss with it. After MOST_PASSES passes,
    this does not mean that more training would help.
    """
    passes = figures["passes"]
    return bool(passes < 1 or (figures["still_falling"] and passes < NEARLY * MOST_PASSES))
