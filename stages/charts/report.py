"""Charts of one report, except those of probes, and charts of several reports.

Source: Grave et al. 2017 (Improving Neural Language Models with a Continuous Cache, arXiv:1612.04426), figures 2 to 5.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.charts.data import Bars, Chart, Histogram, Level, Line, Lines, Series, slug
from stages.charts.reported import Report, bucket_labels, counted_in, in_charts, measure, scored, symbol_in_words
from stages.charts.tuning import bleu_charts, tuning_charts
from stages.metrics import FEW_TOKENS
from stages.numbers import number

TITLE = "Retrieval accuracy@K"
BY_CHANCE = ", by chance"
Curve = tuple[Report, Mapping[str, Any]]


def curve_charts(reports: Sequence[Report]) -> list[Chart]:
    """A chart for each setting and each scored text, of all curves with at least two points.

    `perplexity-by-size`, `-window`, `-k`, `-neighbors`; the text is in the name if there are several.
    """
    several = len({report.scored for report in reports}) > 1
    charts = []
    for (over, text), curves in _groups(reports).items():
        name = f"perplexity-by-{slug(over)}" + (f"-{slug(text)}" if several else "")
        charts += [_curve_chart(f"{name}{suffix}", over, text, part) for suffix, part in in_charts(curves)]
    return charts


def accuracy_charts(reports: Sequence[Report]) -> list[Chart]:
    """Charts of the share of tokens that are among the values of the best K neighbours, over K."""
    measured = (("retrieval_accuracy", ""), ("retrieval_accuracy_by_chance", BY_CHANCE))
    accuracies = [
        (report, f"{report.scored}{what}", shares)
        for report in reports
        for name, what in measured
        if (shares := report.metrics.get(name))
    ]
    return [accuracy_chart(f"retrieval-accuracy{suffix}", TITLE, part) for suffix, part in in_charts(accuracies)]


def accuracy_chart(name: str, title: str, accuracies: Sequence[tuple[Report, str, Mapping[str, float]]]) -> Chart:
    """Chart the share of correct retrievals by K, for each report and row."""
    curves = [
        (report, row, sorted((int(k), share) for k, share in shares.items())) for report, row, shares in accuracies
    ]
    by_chance = any(row.endswith(BY_CHANCE) for _, row, _ in curves)
    return Chart(
        name,
        title,
        "Share of tokens that stand among the values of their best K neighbours"
        + ("; by chance: of K rows drawn at random." if by_chance else "."),
        Lines(
            [Line(report.series(row), points) for report, row, points in curves],
            *("K", "accuracy@K"),
            ticks=sorted({k for _, _, points in curves for k, _ in points}),
            percent=True,
        ),
    )


def _groups(reports: Sequence[Report]) -> dict[tuple[str, str], list[Curve]]:
    """Curves of at least two points, by the setting and the scored text."""
    groups: dict[tuple[str, str], list[Curve]] = {}
    for report in reports:
        for curve in report.metrics.get("curves") or ():
            if len(curve["points"]) > 1:
                groups.setdefault((curve["over"], report.scored), []).append((report, curve))
    return groups


def _curve_chart(name: str, over: str, text: str, curves: Sequence[Curve]) -> Chart:
    words = symbol_in_words(over)
    lines = [
        Line(report.series(curve["row"]), [(point[over], point["perplexity"]) for point in curve["points"]])
        for report, curve in curves
    ]
    return Chart(
        name,
        f"{measure(curves[0][0].metrics)} by {words}: {text}",
        f"Perplexity of {text} by {words}; other settings as tuned at each point.",
        Lines(
            lines,
            words,
            "perplexity",
            ticks=sorted({x for line in lines for x, _ in line.points}),
            level=_level(curves),
        ),
    )


def _level(curves: Sequence[Curve]) -> Level | None:
    """The first row, without memory, if all reports agree on it and it is not among the curves."""
    firsts = [(report.metrics["rows"][0], curve["row"]) for report, curve in curves]
    perplexities = {first["perplexity"] for first, _ in firsts}
    if len(perplexities) > 1 or None in perplexities or any(first["row"] == row for first, row in firsts):
        return None
    return Level(firsts[0][0]["row"], perplexities.pop())


def frequency_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """Make `loss-by-frequency`: the change of each row of a report against the first row.

    Changes are in nats. As shares of perplexity, the changes of the rarest words would hide all others.
    """
    frequency = metrics.get("frequency_buckets")
    if not frequency:
        return []
    return [
        _bucket_chart(f"loss-by-frequency{suffix}", metrics, part) for suffix, part in in_charts(frequency["rows"][1:])
    ]


def _bucket_chart(name: str, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Chart:
    frequency = metrics["frequency_buckets"]
    first, text = frequency["rows"][0], counted_in(metrics)
    return Chart(
        name,
        f"Change of loss by frequency, {metrics['split']}",
        f"Nats a token against {first['row']}, by how often the token occurs in {text}. Below zero the memory helps."
        f"{few_note(bucket_labels(frequency), [bucket['tokens'] for bucket in frequency['buckets']])}",
        Bars(
            bucket_labels(frequency),
            [Series(row["row"], _changes(frequency, row)) for row in rows],
            f"times in {text}",
            "change of loss, nats",
        ),
    )


def few_note(labels: Sequence[str], tokens: Sequence[int]) -> str:
    """Note on the groups that have too few tokens for a bar; empty if there are none."""
    few = [
        f"{label} ({count:,} token{'s'[: count != 1]})"
        for label, count in zip(labels, tokens, strict=True)
        if count < FEW_TOKENS
    ]
    return f" Left out: {', '.join(few)}. Results of fewer than {FEW_TOKENS} tokens are mostly luck." if few else ""


def _changes(frequency: Mapping[str, Any], row: Mapping[str, Any]) -> list[float | None]:
    """Changes of a row against the first, nats per token; None for buckets of too few tokens, or if not known."""
    held = zip(frequency["buckets"], row["nll"], frequency["rows"][0]["nll"], strict=True)
    return [
        None if None in (nll, first) or bucket["tokens"] < FEW_TOKENS else nll - first for bucket, nll, first in held
    ]


def weight_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """Charts of the tuning and learning of a memory's weight.

    `learned-lambda`: shares of the scored tokens by their weight; `perplexity-by-searches`.
    """
    learned = metrics.get("learned_weight")
    of_learned = [] if learned is None else [*_weights(metrics, learned), *_searches(metrics, learned)]
    return [*tuning_charts(metrics), *bleu_charts(metrics), *of_learned]


def _searches(metrics: Mapping[str, Any], learned: Mapping[str, Any]) -> list[Chart]:
    """Perplexity against the share of tokens searched for, and the same for tokens chosen at random."""
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
    """Perplexity expected if the tokens to search for are chosen at random: nats are interpolated between both ends."""
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


def report_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """All charts for which `metrics.json` has numbers; the same numbers give the same charts."""
    alone = [Report(metrics, scored(metrics))]
    return [
        *weight_charts(metrics),
        *curve_charts(alone),
        *accuracy_charts(alone),
        *frequency_charts(metrics),
    ]


ROWS = "rows"
Kind = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Text, model, row, and corpora that the row reads: the same for all reports on one line."""


def datastore_charts(reports: Sequence[Report]) -> list[Chart]:
    """`perplexity-by-rows`, `bleu-by-rows`: the first memory of each report over the rows of its datastore.

    Empty unless reports of one model, text, memory and corpora read datastores of different sizes.
    """
    groups: dict[Kind, list[Report]] = {}
    for report in reports:
        metrics, read = report.metrics, report.metrics.get("read", {})
        if "datastore" in read and "neighbors" not in read and "tuning" in metrics and len(metrics["rows"]) > 1:
            memory = metrics["rows"][1]
            kind = report.scored, read["model"], memory["row"], _corpora(memory)
            groups.setdefault(kind, []).append(report)
    return [*_charts("perplexity", groups), *_charts("bleu", groups)]


def _corpora(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Corpus and split of each text that a row reads, as named by its control.

    Datastores of two domains make no curve, since their sizes cannot be compared.
    """
    control = row.get("control") or {"texts": []}
    return tuple(sorted((text["corpus"], text["split"]) for text in control["texts"]))


def _charts(name: str, groups: Mapping[Kind, Sequence[Report]]) -> Iterator[Chart]:
    lines = [
        Line(f"{row}: {text}", points)
        for (text, _, row, _), reports in groups.items()
        if len(points := _points(name, reports)) > 1
    ]
    words = symbol_in_words(ROWS)
    for suffix, part in in_charts(lines):
        what = "BLEU" if name == "bleu" else measure(next(iter(groups.values()))[0].metrics)
        yield Chart(
            f"{slug(name)}-by-{ROWS}{suffix}",
            f"{what} by {words}",
            f"{what} of reports that differ in their datastore; other settings as tuned in each.",
            Lines(part, words, what, ticks=sorted({x for line in part for x, _ in line.points}), even=name == "bleu"),
        )


def _points(name: str, reports: Sequence[Report]) -> list[tuple[float, float]]:
    """Pairs (rows of the datastore, measure of the first memory), ascending; the last report of each size."""
    found = {
        report.metrics["tuning"]["largest"]["k"]: report.metrics["rows"][1][name]
        for report in reports
        if report.metrics["rows"][1].get(name) is not None
    }
    return sorted(found.items())
