"""Settings of a comparison: the compared probabilities, and the bootstrap; and the fields of its
JSON.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from stages.config import Settings

if TYPE_CHECKING:
    from stages.evaluation.figures.intervals import Bootstrap


SHOWN_DIGITS = 2
"""Decimal places of the difference of a token, in nats, where tokens are listed."""


class ComparisonSettings(Settings):
    """Settings of a comparison."""

    reading: Literal["final", "model"] = "final"
    """Probabilities that are compared: with what the first memory row reads (final), or of the
    model alone.
    """
    samples: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """Resamples of the bootstrap."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Share of the resamples that an interval holds."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the resampling."""
    block_tokens: Annotated[int, Field(ge=1)] | None = None
    """Resample blocks of this many consecutive tokens; None: documents, or blocks where there is
    one document.
    """
    most: Annotated[int, Field(ge=0)] = 10
    """How many of the tokens won and lost most are shown."""
    around: Annotated[int, Field(ge=0)] | None = None
    """Tokens of context shown before and after each of them; None: half a line."""

    @property
    def bootstrap(self) -> "Bootstrap":
        """The bootstrap of these settings."""
        from stages.evaluation.figures.intervals import Bootstrap

        return Bootstrap(self.samples, self.confidence, self.seed)


FIELDS = {
    "a": "`reference`, `model`, `method`, `row` and figures of the first report, `counting` included, and measures from "
    "outside; "
    "`against_counting`: `perplexity` and `counting` on the same text, `on_new_text` where some was read before, "
    "and the `interval` of the change.",
    "b": "The same of the second.",
    "reading": "The memory that is compared: `final`, or `model`.",
    "split": "The split that both scored.",
    "score": "`all` tokens, or the `last-word`.",
    "paired_on": "`tokens`, or `text` where tokenizers differ.",
    "unknown_rate": "Share of `<unk>`.",
    "unknown_rate_a": "On text, that of the first.",
    "unknown_rate_b": "That of the second.",
    "tokens": "Compared tokens.",
    "tokens_a": "On text, those of the first.",
    "tokens_b": "Those of the second.",
    "bleu": "Of translations: BLEU of both, and their difference by the paired bootstrap.",
    "bootstrap": "`samples`, `confidence`, `seed`; `unit`, `units`, `units_won`.",
    "nll_a": "Mean of the first in nats a token.",
    "nll_b": "Mean of the second.",
    "difference": "B minus A: negative where B is better.",
    "interval": "Of the difference.",
    "perplexity_ratio": "Perplexity of B over that of A.",
    "perplexity_ratio_interval": "Its interval.",
    "won": "Tokens that B gives more probability.",
    "lost": "Tokens that it gives less.",
    "won_share": "Their share.",
    "lost_share": "Their share.",
    "by_frequency": "The same of each bucket of training counts.",
    "by_position": "The same of each range of positions.",
    "per": "On text: the same by `word` and `character`.",
    "most_won": "Tokens with their place, text, log-probabilities and what probes tell.",
    "most_lost": "The same of those that B loses most.",
    "groups": "Of several seeds: `reports`, `seeds`, `models`, `method`, `rows`. Of a row also the means of its "
    "`costs`; `over_documents`, the widest interval of its change over documents.",
}
"""Meaning of each field."""
