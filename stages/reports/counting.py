"""A row against its control: which is lower, and how surely. Does not import torch.

Both perplexities are on the same text. They are on new text if some of the text was read before,
since counting reproduces known text exactly.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stages.reports.fields import counting, counting_on_new_text, repeated_share

Figures = Mapping[str, Any]

TIES_WITHOUT_INTERVAL = 0.98
"""Share of its control's perplexity above which a row is not surely better, if there is no
interval: too few documents, or the row of a shut gate.
"""


class AgainstCounting(NamedTuple):
    """Perplexity of a row, and of its control on the same text."""

    perplexity: float | None = None
    """None if it diverges."""
    counting: float | None = None
    """None without a control."""
    interval: Sequence[float] | None = None
    """Confidence interval of `change`; None if it is not known."""
    on_new_text: bool = False
    """Whether both are of the tokens in no paragraph that was read before."""

    @property
    def change(self) -> float | None:
        """Change of perplexity from the control to the row, as a share; below 0 the row is better."""
        if self.perplexity is None or not self.counting:
            return None
        return self.perplexity / self.counting - 1

    @property
    def loses(self) -> bool:
        """Whether the row is not below its control; False without a control."""
        return self.counting is not None and not beats(self.perplexity, self.counting)

    @property
    def ties(self) -> bool:
        """Whether the row is below its control, but perhaps by chance alone."""
        if self.counting is None or self.loses:
            return False
        if self.interval is None:
            return not beats(self.perplexity, self.counting * TIES_WITHOUT_INTERVAL)
        return self.interval[1] >= 0

    def words(self, number: Callable[[float], str]) -> str:
        """`counting (50.00)`; or `counting on new text (22.10, counting 21.30)`, with both figures.

        A sentence names a row's perplexity on all text. On new text that figure is another one, so
        it stands beside that of the control.
        """
        assert self.counting is not None, "there is no control"
        if not self.on_new_text:
            return f"counting ({number(self.counting)})"
        row = "diverges" if self.perplexity is None else number(self.perplexity)
        return f"counting on new text ({row}, counting {number(self.counting)})"


def against_counting(report: Figures, row: Figures) -> AgainstCounting:
    """A row of a report against its control.

    A row without a figure on new text (a shut gate) is compared on all of the text.
    """
    control = row.get("control") or {}
    outside = report["outside_repeated_paragraphs"]["rows"] if repeated_share(report) else []
    new = {other["row"]: other["perplexity"] for other in outside}
    if row["row"] in new and counting_on_new_text(row) is not None:
        interval = control.get("interval_on_new_text")
        return AgainstCounting(new[row["row"]], counting_on_new_text(row), interval, True)
    return AgainstCounting(row["perplexity"], counting(row), control.get("interval"))


def beats(perplexity: float | None, limit: float) -> bool:
    """Whether a perplexity is below a limit; None, of a row that diverges, is not."""
    return perplexity is not None and perplexity < limit
