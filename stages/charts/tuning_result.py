"""The tuning of a report's memory, ready to draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.charts.reported import measure
from stages.charts.symbols import symbol_in_words
from stages.numbers import number


@dataclass(frozen=True)
class Axis:
    """One hyperparameter: its name in the report and its values; None: an infinite temperature."""

    name: str
    values: Sequence[float | None]

    @property
    def symbol(self) -> str:
        return symbol_in_words(self.name)

    @property
    def labels(self) -> list[str]:
        return ["∞" if value is None else number(value) for value in self.values]


@dataclass(frozen=True)
class TuningResult:
    """Perplexity of the tuning split at each scale and weight, [S, G]; infinite where it diverged."""

    scale: Axis
    weight: Axis
    perplexity: np.ndarray
    plain: float
    first: str
    """Name of the row without memory."""
    what: str
    """Perplexity of what, read with how much memory."""

    @property
    def best(self) -> tuple[int, int]:
        """The place of the smallest perplexity, the first of equals."""
        scale, weight = np.unravel_index(int(np.argmin(self.perplexity)), self.perplexity.shape)
        return int(scale), int(weight)

    @property
    def helps(self) -> bool:
        """Whether some setting is better than the model without memory."""
        return bool(np.isfinite(self.plain) and self.perplexity.min() < self.plain and not self._off)

    @property
    def _off(self) -> bool:
        """Whether the best is to read no memory; both are sums of the same numbers, in another order."""
        return bool(np.isclose(self.perplexity[self.best], self.plain, rtol=1e-9, atol=0))

    @property
    def limit(self) -> float:
        """Where colours end: at the plain model's perplexity, or at the largest finite one if nothing is better."""
        return self.plain if self.helps else float(self.perplexity[np.isfinite(self.perplexity)].max())

    @property
    def outcome(self) -> str:
        """The perplexity without memory, and where the best is."""
        without = f"{self.first[:1].upper()}{self.first[1:]} {number(self.plain)}"
        if self._off:
            return f"{without}, and no setting is better"
        scale, weight = self.best
        settings = [
            f"{axis.symbol} {axis.labels[place]}" for axis, place in ((self.scale, scale), (self.weight, weight))
        ]
        return f"{without}, best {number(self.perplexity[self.best])} at {', '.join(settings)}"


def tuning_result(report: Mapping[str, Any]) -> TuningResult | None:
    """The grid of a report; None if nothing was tuned, or nothing of it is a finite number."""
    grid = report["grid"]
    if grid is None:
        return None
    perplexity = _perplexity(grid["nll"])
    if not np.isfinite(perplexity).any():
        return None
    return TuningResult(
        scale=Axis(grid["scale_name"], grid["scales"]),
        weight=Axis(grid["weight_name"], grid["weights"]),
        perplexity=perplexity,
        plain=float(_perplexity(grid["plain_nll"])),
        first=report["rows"][0]["row"],
        what=f"{measure(report)} on {grid['split']}: {grid['row']}, {symbol_in_words(grid['over'])} {grid['at']:,}",
    )


def _perplexity(nll: Any) -> np.ndarray:
    """exp of nats; infinite for None and what is not a number."""
    with np.errstate(over="ignore"):
        return np.nan_to_num(np.exp(np.array(nll, dtype=float)), nan=np.inf, posinf=np.inf)
