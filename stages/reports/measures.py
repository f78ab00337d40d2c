"""Measures: the figures of a row of a report. One record each says how it is computed and shown.

Terminals, pages, notebooks, comparisons and model cards read these records. Does not import torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stages.metrics import Counts
from stages.numbers import number, size
from stages.registry import Registry, import_outside, load

if TYPE_CHECKING:
    import numpy as np

COUNTING = "counting"
"""Name of the controls in tables."""
NEW_TEXT = "perplexity_on_new_text"
COUNTING_ON_NEW_TEXT = "counting_on_new_text"
Shown = Literal["always", "never", "costs", "new text", "tokenizers"]


def two_decimals(value: float) -> str:
    """`145.14`; a number of thousands without decimals, `3,465`."""
    return f"{value:,.2f}" if abs(value) < 1000 else number(float(value))


def four_decimals(value: float) -> str:
    """`1.4077`."""
    return f"{value:.4f}"


def percent(value: float) -> str:
    """`79.3%`."""
    return f"{value:.1%}"


def whole(value: float) -> str:
    """`3,465`."""
    return number(round(value))


@dataclass(frozen=True)
class RowSums:
    """Sums of a row over the counted tokens of the scored split."""

    nll: float
    """Nats; infinite if not finite."""
    counts: Counts
    of_tokens: float | None = None
    """Sum of the measure's `of_token`; None without one, or if it is not finite."""


@dataclass(frozen=True)
class Measure:
    """One figure of every row of a report."""

    name: str
    """Its field in `metrics.json`."""
    of: str
    """Its meaning in a phrase."""
    unit: str = ""
    better: Literal["lower", "higher", ""] = ""
    """Which is better; empty: neither."""
    text: Callable[[float], str] = two_decimals
    """A value as it is shown."""
    header: str = ""
    """Header of its column; empty: its name."""
    card: str = ""
    """Header in the card of an exported model; empty: not shown there."""
    shown: Shown = "always"
    """When tables have it: `costs` beside a learned memory that saves them, `new text` if some text
    was read before, `tokenizers` if several are compared. Files have it always.
    """
    value: Callable[[RowSums], float | None] | None = None
    """Computes it when a report is made; None: the evaluation has it already."""
    of_token: "Callable[[np.ndarray], np.ndarray] | None" = None
    """From log-probabilities in nats, float64 [n], to the numbers [n] whose sum `value` gets."""

    @property
    def title(self) -> str:
        """Header of its column."""
        return self.header or self.name

    @property
    def explanation(self) -> str:
        """`Confident: share of tokens above a tenth; higher is better.`"""
        unit = f" ({self.unit})" if self.unit else ""
        better = f"; {self.better} is better" if self.better else ""
        return f"{self.title[:1].upper()}{self.title[1:]}: {self.of}{unit}{better}."


class MeasureTable(Registry):
    """Measures by name: those of the package themselves, others as `"module:MEASURE"`."""

    def all_measures(self) -> list[Measure]:
        """All in the order of tables, those from outside last."""
        import_outside()
        return [self.measure(name) for name in self.targets]

    def measure(self, name: str) -> Measure:
        """The measure of a name. Raises: UnknownPart for an unknown name."""
        target = self._part(name)
        measure: Measure = load(target) if isinstance(target, str) else target
        return measure

    def costs(self) -> list[Measure]:
        """Measures of what a row costs."""
        return [measure for measure in self.all_measures() if measure.shown == "costs"]

    def computed(self) -> list[Measure]:
        """Measures that a report computes by their records."""
        return [measure for measure in self.all_measures() if measure.value is not None]

    def modules_of(self, part: Any) -> set[str]:
        return super().modules_of(part) if isinstance(part, str) else set()


OWN_MEASURES = (
    Measure("nll", "mean negative log-likelihood of a token", "nats", "lower", shown="never"),
    Measure("perplexity", "exp of the mean nats", better="lower", card="perplexity"),
    Measure(
        COUNTING,
        "perplexity of a trigram of the text that the row may read",
        better="lower",
        card="a trigram of the text that the row may read",
    ),
    Measure(
        "bits_per_byte",
        "bits of the text by its bytes",
        "bits",
        "lower",
        four_decimals,
        header="bits/byte",
        shown="tokenizers",
    ),
    Measure(
        "bits_per_character",
        "bits of the text by its characters",
        "bits",
        "lower",
        four_decimals,
        header="bits/char",
        card="bits/character",
    ),
    Measure(
        "word_perplexity",
        "exp of the nats by the words",
        better="lower",
        header="word perplexity",
        card="word perplexity",
        shown="tokenizers",
    ),
    Measure(
        "accuracy",
        "share of passages whose last word is the likeliest",
        better="higher",
        text=percent,
        card="accuracy",
    ),
    Measure("bleu", "BLEU of translations", better="higher", header="BLEU"),
    Measure("chrf", "chrF of translations", better="higher", header="chrF"),
    Measure(
        NEW_TEXT,
        "perplexity of text in no paragraph that was read before",
        better="lower",
        header="new text",
        card="perplexity on new text",
        shown="new text",
    ),
    Measure(
        COUNTING_ON_NEW_TEXT,
        "the same of a trigram",
        better="lower",
        header=f"{COUNTING}, new text",
        shown="new text",
    ),
    Measure(
        "tokens_per_second",
        "speed of reading",
        "tokens a second",
        "higher",
        whole,
        header="tokens/s",
        shown="costs",
    ),
    Measure(
        "searches_per_token",
        "searches of stored entries for each token",
        better="lower",
        header="searches/token",
        shown="costs",
    ),
    Measure(
        "forward_tokens",
        "tokens that the model reads for each scored one; one that it learns counts three",
        better="lower",
        header="forward/token",
        shown="costs",
    ),
    Measure(
        "seconds",
        "making of the model and of what is read besides, and reading of the split",
        "seconds",
        "lower",
        whole,
        shown="costs",
    ),
    Measure(
        "bytes_beside_model",
        "what is read besides the model",
        "bytes",
        "lower",
        size,
        header="bytes beside",
        shown="costs",
    ),
)
MEASURES = MeasureTable("measure", {measure.name: measure for measure in OWN_MEASURES})


def measured(value: float, name: str) -> str:
    """A value of a measure as it is shown: `145.14`, `1.4077`, `79.3%`, `3,465`."""
    return MEASURES.measure(name).text(value)
