"""Charts of a memory's tuning: perplexity on the tuning split over its two settings, or BLEU over
each setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stages.charts.data import Chart, HeatMap, Level, Line, Lines, Side, SmallerIsBetter
from stages.charts.reported import BLEU, measure, symbol_in_words
from stages.numbers import number


class Axis(NamedTuple):
    """One hyperparameter: its name in the report, and its values; None means an infinite
    temperature.
    """

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
    """Perplexity on the tuning split at each scale and weight, [S, G]; infinite if it diverged."""

    scale: Axis
    weight: Axis
    perplexity: np.ndarray
    plain: float
    first: str
    """Name of the row without memory."""
    what: str
    """Description of the perplexity: of which text, with how much memory."""

    @property
    def best(self) -> tuple[int, int]:
        """The place of the smallest perplexity; the first one wins a tie."""
        scale, weight = np.unravel_index(int(np.argmin(self.perplexity)), self.perplexity.shape)
        return int(scale), int(weight)

    @property
    def switched_off(self) -> bool:
        """Whether reading no memory is best; compared with a tolerance, since sums differ in their
        order.
        """
        return bool(np.isclose(self.perplexity[self.best], self.plain, rtol=1e-9, atol=0))

    @property
    def helps(self) -> bool:
        """Whether some setting is better than the model without memory."""
        return bool(
            np.isfinite(self.plain)
            and self.perplexity[self.best] < self.plain
            and not self.switched_off
        )

    @property
    def outcome(self) -> str:
        """A sentence with the perplexity without memory, and the best setting."""
        without = f"{self.first[:1].upper()}{self.first[1:]} {number(self.plain)}"
        if self.switched_off:
            return f"{without}, and no setting is better."
        axes = zip((self.scale, self.weight), self.best, strict=True)
        settings = ", ".join(f"{axis.symbol} {axis.labels[place]}" for axis, place in axes)
        return f"{without}, best {number(self.perplexity[self.best])} at {settings}."


def tuning_result(report: Mapping[str, Any]) -> TuningResult | None:
    """The grid of a report; None if nothing was tuned, or no perplexity is finite."""
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
    """exp of nats; infinite for None and NaN."""
    with np.errstate(over="ignore"):
        return np.nan_to_num(np.exp(np.array(nll, dtype=float)), nan=np.inf, posinf=np.inf)


def tuning_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`heat-map` if both settings had several candidates; `perplexity-by-lambda`, `-alpha` at the
    best scale.

    If the weight had one candidate, the same by scale: `perplexity-by-theta`, `-temperature`.
    """
    tuning = tuning_result(metrics)
    if tuning is None:
        return []
    scales, weights = tuning.perplexity.shape
    charts = []
    if min(scales, weights) > 1:
        across, up = (Side(axis.symbol, axis.labels) for axis in (tuning.scale, tuning.weight))
        finite = tuning.perplexity[np.isfinite(tuning.perplexity)]
        # Colours end at the plain model; if nothing is better, at the largest perplexity.
        colours = (
            SmallerIsBetter(tuning.plain, tuning.first)
            if tuning.helps
            else SmallerIsBetter(float(finite.max()))
        )
        caption = f"{tuning.outcome} Darker, in the dark brighter, is better; colours are finer near the best."
        charts = [
            Chart(
                "heat-map",
                tuning.what,
                caption,
                HeatMap(tuning.perplexity.tolist(), across, up, colours),
            )
        ]
    best, _ = tuning.best
    if weights > 1:
        charts.append(
            _line(tuning, tuning.weight, tuning.perplexity[best].tolist(), (tuning.scale, best))
        )
    elif scales > 1:
        charts.append(
            _line(tuning, tuning.scale, tuning.perplexity[:, 0].tolist(), (tuning.weight, 0))
        )
    return charts


def _line(
    tuning: TuningResult, axis: Axis, perplexities: Sequence[float], fixed: tuple[Axis, int]
) -> Chart:
    """Perplexities along one axis, with the other setting fixed; an infinite temperature is left
    out.
    """
    points = []
    for value, perplexity in zip(axis.values, perplexities, strict=True):
        if value is not None:
            points.append((value, perplexity))

    other, place = fixed
    line = Line(f"{other.symbol} {other.labels[place]}", points)
    ticks = None if axis is tuning.weight else [value for value, _ in points]
    level = Level(tuning.first, tuning.plain) if np.isfinite(tuning.plain) else None
    plot = Lines([line], axis.symbol, "perplexity", ticks, level=level)
    title = f"{tuning.what}, by {axis.symbol}"
    return Chart(f"perplexity-by-{axis.name}", title, tuning.outcome, plot)


def bleu_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`bleu-by-k`, `-temperature`, `-lambda` of each row: over each setting with a choice, the
    others at their best.

    Empty if perplexity chose the settings.
    """
    tuning = metrics.get("tuning", {})
    figures = tuning.get(BLEU) or {"rows": []}
    charts = []
    for row in figures["rows"]:
        candidates = row["candidates"]
        names = [name for name in candidates[0] if name != BLEU]
        for name in names:
            best_bleu = _best_bleu(candidates, name)
            if len(best_bleu) > 1:
                values = sorted(best_bleu)
                points = [(value, best_bleu[value]) for value in values]
                words = symbol_in_words(name)
                tried = f"{figures['sentences']:,} sentences of {tuning['split']}"
                best = number(max(best_bleu.values()))
                caption = f"{tried}, each number with the best of the others. Best {best}."
                plot = Lines([Line(row["row"], points)], words, "BLEU", ticks=values, even=True)
                title = f"BLEU of {row['row']} by {words}"
                charts.append(Chart(f"bleu-by-{name}", title, caption, plot))
    return charts


def _best_bleu(candidates: Sequence[Mapping[str, Any]], name: str) -> dict[float, float]:
    """The best BLEU of all candidates with each value of a setting."""
    best: dict[float, float] = {}
    for candidate in candidates:
        value = candidate[name]
        # an infinite temperature has no place on an axis
        if value is not None:
            best[value] = max(candidate[BLEU], best.get(value, candidate[BLEU]))
    return best
