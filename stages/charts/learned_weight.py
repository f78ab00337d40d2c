"""How much a memory is trusted where its weight is another for each context."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from stages.charts.data import Chart, Histogram, Series, Table
from stages.charts.symbols import symbol_in_words
from stages.numbers import number


def learned_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`learned-lambda`: shares of the scored tokens by their weight; none where one weight is read for all."""
    learned = metrics.get("learned_weight")
    if learned is None or learned["histogram"] is None:
        return []
    symbol, (edges, tokens) = symbol_in_words(learned["name"]), learned["histogram"].values()
    return [
        Chart(
            f"learned-{learned['name']}",
            f"Learned {symbol} on {metrics['split']}: {learned['row']}",
            f"How much the memory is trusted, from 0 (the model alone) to 1 (the memory alone); on average "
            f"{number(learned['mean'])}, where the best for all contexts is {number(learned['one_for_all'])}.",
            Histogram(
                edges,
                [Series("tokens", [count / max(1, sum(tokens)) for count in tokens])],
                learned["mean"],
                f"{symbol} (0: model, 1: memory)",
            ),
            Table(
                ("from", "to", "tokens"), [(*ends, count) for ends, count in zip(pairwise(edges), tokens, strict=True)]
            ),
        )
    ]
