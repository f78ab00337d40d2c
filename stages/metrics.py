"""Figures of merit: of a scored split, from its summed negative log-likelihood, and of a training run."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

LARGEST_WORD_PERPLEXITY = 1e6
"""More than the words that a person could choose from: "words" that are whole sentences."""
MOST_PASSES = 8
"""Reading a small text more often gives little, or harms: the first four passes are worth as much as new text, the next
ever less (Muennighoff et al. 2023, arXiv:2305.16264). The preset `tiny` on a novel of 131,000 tokens has a validation
perplexity of 54.7 after 4 passes, 51.2 after 8 and 52.5 after 16; on
42,000 tokens of that novel 30.2 after 8 and 32.0 after 16; on tinyshakespeare (353,000) 49.5 after 4, 42.1 after 8."""
FEW_TOKENS = 100
"""Fewer have a perplexity that is mostly luck: the losses of tokens lie about 2.3 nats apart, so that the 95% interval
of a hundred goes from two thirds to one and a half of it."""
TOO_FEW_TOKENS = 10
"""Number of tokens below which a table shows no figure: one token that is hardly ever seen makes it any number."""
FEW_NOTE = f"in parentheses: of fewer than {FEW_TOKENS} tokens, mostly luck"
"""Note of tables on figures of so few tokens."""
FEWEST_UNITS = 6
"""Least number of units that an interval is drawn of. An interval of fewer is little more than their smallest and their
largest, and far too narrow. Of three, one draw in 27 is the least alone; a 95% interval leaves out less at an end."""
NEARLY = 0.9
"""A pass reads whole batches, and of a short text leaves some out."""
LONG_WORD = 25
"""Characters to a word that no language's prose has on average: German has 6, Finnish 8."""


class Counts(NamedTuple):
    """How long a scored text is, in each unit; 0: not known."""

    tokens: int
    characters: int
    bytes: int
    words: int

    @classmethod
    def of(cls, split: dict[str, Any]) -> "Counts":
        """Counts of what tokenize measured about a split."""
        return cls(*(int(split[unit]) for unit in cls._fields))


def figures(nll: float, counts: Counts) -> dict[str, float | None]:
    """Figures of a split whose tokens have `nll` nats in all; None where one is not a finite number.

    `nll` is the mean in nats per token, perplexity its exponential; bits per character and per byte
    divide by what the text had before it was tokenized; word perplexity is exp(nats per word).
    """
    return {
        "nll": finite(nll / counts.tokens),
        "perplexity": perplexity(nll, counts.tokens),
        "bits_per_character": _share(nll / math.log(2), counts.characters),
        "bits_per_byte": _share(nll / math.log(2), counts.bytes),
        "word_perplexity": perplexity(nll, counts.words),
    }


def shown_word_perplexity(value: float | None, bits_per_character: float | None = None) -> float | None:
    """A word perplexity that means something; None for one that no vocabulary has, as of text without spaces.

    Args:
        value: exp(nats a word).
        bits_per_character: of the same text; with it the length of its words is known too.
    """
    if value is None or value > LARGEST_WORD_PERPLEXITY:
        return None
    characters = math.log(value) / (bits_per_character * math.log(2)) if bits_per_character else 0
    return value if characters <= LONG_WORD else None


def perplexity(nll: float, units: int) -> float | None:
    """exp(nats per unit) of `nll` nats in all; None if there is no unit or the number is too large."""
    mean = _share(nll, units)
    try:
        return None if mean is None else finite(math.exp(mean))
    except OverflowError:
        return None


def _share(total: float, units: int) -> float | None:
    return finite(total / units) if units else None


def diverged(perplexity: float | None, vocabulary: int) -> bool:
    """Whether a perplexity is not a finite number, or worse than that of a uniform guess among `vocabulary` tokens."""
    return perplexity is None or perplexity > vocabulary


def finite(number: float) -> float | None:
    """The number, or None, which JSON can hold, in place of what is not finite."""
    return number if math.isfinite(number) else None


def undertrained(figures: Mapping[str, Any]) -> bool:
    """Whether a longer run would have made a better model, by the `passes` and `still_falling` of its metrics.

    The learning rate falls at the end of a run, and the loss with it. After as many passes as a text is worth that is
    no sign of more to come.
    """
    passes = figures["passes"]
    return bool(passes < 1 or (figures["still_falling"] and passes < NEARLY * MOST_PASSES))
