"""Charts of a memory whose numbers were chosen by BLEU: the tuning split's, by each number."""

from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, Line, Lines
from stages.charts.reported import symbol_in_words
from stages.numbers import number

BLEU = "bleu"


def bleu_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`bleu-by-k`, `-temperature`, `-lambda` of each row: over the numbers that had a choice, the others at their best.

    None where perplexity chose.
    """
    tuning = metrics.get("tuning", {})
    found = tuning.get(BLEU)
    if found is None:
        return []
    tried = f"{found['sentences']:,} sentences of {tuning['split']}"
    return [chart for row in found["rows"] for chart in _of_row(row, tried)]


def _of_row(row: Mapping[str, Any], tried: str) -> list[Chart]:
    names = [name for name in row["candidates"][0] if name != BLEU]
    return [
        Chart(
            f"bleu-by-{name}",
            f"BLEU of {row['row']} by {symbol_in_words(name)}",
            f"{tried}, each number with the best of the others. Best {number(max(y for _, y in points))}.",
            Lines([Line(row["row"], points)], symbol_in_words(name), "BLEU", ticks=[x for x, _ in points], even=True),
        )
        for name in names
        if len(points := _best_by(row["candidates"], name)) > 1
    ]


def _best_by(candidates: list[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """The best BLEU of all candidates with each value of a number, in rising order."""
    values = sorted({one[name] for one in candidates if one[name] is not None})
    return [(value, max(one[BLEU] for one in candidates if one[name] == value)) for value in values]
