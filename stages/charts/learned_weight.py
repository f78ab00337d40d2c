"""How much a memory is trusted where its weight is another for each context, and what few searches are worth."""

import math
from collections.abc import Mapping
from typing import Any

from stages.charts.data import Chart, Histogram, Line, Lines, Series
from stages.charts.reported import measure, symbol_in_words
from stages.numbers import number


def learned_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`learned-lambda`: shares of the scored tokens by their weight; `perplexity-by-searches`."""
    learned = metrics.get("learned_weight")
    if learned is None:
        return []
    return [*_weights(metrics, learned), *_searches(metrics, learned)]


def _searches(metrics: Mapping[str, Any], learned: Mapping[str, Any]) -> list[Chart]:
    """Perplexity against the share of tokens searched for, beside as many searches by chance."""
    points = [point for point in learned["searches"] or () if point["perplexity"] is not None]
    if len(points) < 3:
        return []
    first, last = points[0], points[-1]
    chance = [_by_chance(point["searched"], first, last) for point in points]
    return [
        Chart(
            "perplexity-by-searches",
            f"{measure(metrics)} on {metrics['split']} by searches: {learned['row']}",
            "Tokens are searched for where most gain is expected before the search; without any "
            f"{number(first['perplexity'])}, with {last['searched']:.0%} {number(last['perplexity'])}.",
            Lines(
                [
                    Line("most gain expected", [(point["searched"], point["perplexity"]) for point in points]),
                    Line("by chance", [(p["searched"], y) for p, y in zip(points, chance, strict=True)], dashed=True),
                ],
                "share of tokens searched for",
                "perplexity",
            ),
        )
    ]


def _by_chance(searched: float, first: Mapping[str, float], last: Mapping[str, float]) -> float:
    """Perplexity expected where as many of the tokens of the last point are searched for by chance: nats are means."""
    share = searched / last["searched"]
    return math.exp((1 - share) * math.log(first["perplexity"]) + share * math.log(last["perplexity"]))


def _weights(metrics: Mapping[str, Any], learned: Mapping[str, Any]) -> list[Chart]:
    if learned["histogram"] is None:
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
        )
    ]
