"""Charts of one report, except those of probes, and charts of several reports.

Source: Grave et al. 2017 (Improving Neural Language Models with a Continuous Cache,
arXiv:1612.04426), figures 2 to 5.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.charts.data import Bars, Chart, Histogram, Level, Line, Lines, Series, slug
from stages.charts.reported import (
    Report,
    bucket_labels,
    counted_in,
    in_charts,
    measure,
    scored,
    symbol_in_words,
)
from stages.charts.tuning import bleu_charts, tuning_charts
from stages.metrics import FEW_TOKENS
from stages.numbers import number

TITLE = "Retrieval accuracy@K"
BY_CHANCE = ", by chance"
Curve = tuple[Report, Mapping[str, Any]]


def curve_charts(reports: Sequence[Report]) -> Iterator[Chart]:
    """A chart for each setting and each scored text, of all curves with at least two points.

    `perplexity-by-size`, `-window`, `-k`, `-neighbors`; the text is in the name if there are
    several.
    """
    has_several_texts = len({report.scored for report in reports}) > 1
    groups: dict[tuple[str, str], list[Curve]] = {}
    for report in reports:
        for curve in report.metrics.get("curves") or ():
            if len(curve["points"]) > 1:
                group = (curve["over"], report.scored)
                groups.setdefault(group, []).append((report, curve))

    for (over, text), curves in groups.items():
        name = f"perplexity-by-{slug(over)}"
        if has_several_texts:
            name += f"-{slug(text)}"
        words = symbol_in_words(over)
        for suffix, part in in_charts(curves):
            lines = [_curve_line(report, curve) for report, curve in part]
            ticks = sorted({x for line in lines for x, _ in line.points})
            first_report, _ = part[0]
            yield Chart(
                f"{name}{suffix}",
                f"{measure(first_report.metrics)} by {words}: {text}",
                f"Perplexity of {text} by {words}; other settings as tuned at each point.",
                Lines(lines, words, "perplexity", ticks, level=_level(part)),
            )


def _curve_line(report: Report, curve: Mapping[str, Any]) -> Line:
    points = [(point[curve["over"]], point["perplexity"]) for point in curve["points"]]
    return Line(report.series(curve["row"]), points)


def _level(curves: Sequence[Curve]) -> Level | None:
    """The first row, without memory, if all reports agree on it and it is not among the curves."""
    perplexities = set()
    for report, curve in curves:
        first = report.metrics["rows"][0]
        if curve["row"] == first["row"]:
            return None
        perplexities.add(first["perplexity"])
    if len(perplexities) > 1 or None in perplexities:
        return None
    first_report, _ = curves[0]
    return Level(first_report.metrics["rows"][0]["row"], perplexities.pop())


def accuracy_charts(reports: Sequence[Report]) -> list[Chart]:
    """Charts of the share of tokens that are among the values of the best K neighbours, over K."""
    measured = (("retrieval_accuracy", ""), ("retrieval_accuracy_by_chance", BY_CHANCE))
    accuracies = [
        (report, f"{report.scored}{what}", shares)
        for report in reports
        for name, what in measured
        if (shares := report.metrics.get(name))
    ]
    return [
        accuracy_chart(f"retrieval-accuracy{suffix}", TITLE, part)
        for suffix, part in in_charts(accuracies)
    ]


def accuracy_chart(
    name: str, title: str, accuracies: Sequence[tuple[Report, str, Mapping[str, float]]]
) -> Chart:
    """Chart the share of correct retrievals by K, for each report and row."""
    has_chance = any(row.endswith(BY_CHANCE) for _, row, _ in accuracies)
    caption = "Share of tokens that stand among the values of their best K neighbours"
    caption += "; by chance: of K rows drawn at random." if has_chance else "."

    lines = []
    for report, row, share_of_k in accuracies:
        # keys of JSON are texts, which sort differently
        points = sorted((int(k), share) for k, share in share_of_k.items())
        lines.append(Line(report.series(row), points))
    ticks = sorted({k for line in lines for k, _ in line.points})
    return Chart(name, title, caption, Lines(lines, "K", "accuracy@K", ticks, percent=True))


def frequency_charts(metrics: Mapping[str, Any]) -> Iterator[Chart]:
    """Make `loss-by-frequency`: the change of each row of a report against the first row.

    Changes are in nats. As shares of perplexity, the changes of the rarest words would hide all
    others. Buckets of too few tokens have no bar.
    """
    frequency = metrics.get("frequency_buckets")
    if not frequency:
        return
    first, *others = frequency["rows"]
    counts = [bucket["tokens"] for bucket in frequency["buckets"]]
    labels = bucket_labels(frequency)
    text = counted_in(metrics)
    for suffix, rows in in_charts(others):
        series = []
        for row in rows:
            columns = zip(counts, row["nll"], first["nll"], strict=True)
            changes = [
                None if None in (y, x) or count < FEW_TOKENS else y - x for count, y, x in columns
            ]
            series.append(Series(row["row"], changes))
        yield Chart(
            f"loss-by-frequency{suffix}",
            f"Change of loss by frequency, {metrics['split']}",
            f"Nats a token against {first['row']}, by how often the token occurs in {text}. Below zero the memory "
            f"helps.{few_note(labels, counts)}",
            Bars(labels, series, f"times in {text}", "change of loss, nats"),
        )


def few_note(labels: Sequence[str], tokens: Sequence[int]) -> str:
    """Note on the groups that have too few tokens for a bar; empty if there are none."""
    few = []
    for label, count in zip(labels, tokens, strict=True):
        if count < FEW_TOKENS:
            plural = "" if count == 1 else "s"
            few.append(f"{label} ({count:,} token{plural})")
    if not few:
        return ""
    return (
        f" Left out: {', '.join(few)}. Results of fewer than {FEW_TOKENS} tokens are mostly luck."
    )


def weight_charts(metrics: Mapping[str, Any]) -> Iterator[Chart]:
    """Charts of the tuning and learning of a memory's weight.

    `learned-lambda`: shares of the scored tokens by their weight; `perplexity-by-searches`.
    """
    yield from tuning_charts(metrics)
    yield from bleu_charts(metrics)
    learned = metrics.get("learned_weight")
    if learned is None:
        return
    if learned["histogram"] is not None:
        symbol = symbol_in_words(learned["name"])
        edges, counts = learned["histogram"].values()
        num_tokens = max(1, sum(counts))
        shares = [count / num_tokens for count in counts]
        yield Chart(
            f"learned-{learned['name']}",
            f"Learned {symbol} on {metrics['split']}: {learned['row']}",
            f"How much the memory is trusted, from 0 (the model alone) to 1 (the memory alone); on average "
            f"{number(learned['mean'])}, where the best for all contexts is {number(learned['one_for_all'])}.",
            Histogram(
                edges,
                [Series("tokens", shares)],
                learned["mean"],
                f"{symbol} (0: model, 1: memory)",
            ),
        )
    yield from _search_charts(metrics, learned)


def _search_charts(metrics: Mapping[str, Any], learned: Mapping[str, Any]) -> Iterator[Chart]:
    """`perplexity-by-searches`: perplexity against the share of tokens searched for."""
    points = [
        (search["searched"], search["perplexity"])
        for search in learned["searches"] or ()
        if search["perplexity"] is not None
    ]
    if len(points) < 3:
        return
    _, without_any = points[0]
    largest, with_all = points[-1]

    # Nats are interpolated between both ends, if the tokens to search for are chosen at random.
    chance = []
    for searched, _ in points:
        share = searched / largest
        nats = (1 - share) * math.log(without_any) + share * math.log(with_all)
        chance.append((searched, math.exp(nats)))
    yield Chart(
        "perplexity-by-searches",
        f"{measure(metrics)} on {metrics['split']} by searches: {learned['row']}",
        "Tokens are searched for where most gain is expected before the search; without any "
        f"{number(without_any)}, with {largest:.0%} {number(with_all)}.",
        Lines(
            [Line("most gain expected", points), Line("by chance", chance, dashed=True)],
            "share of tokens searched for",
            "perplexity",
        ),
    )


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


def datastore_charts(reports: Sequence[Report]) -> Iterator[Chart]:
    """`perplexity-by-rows`, `bleu-by-rows`: the first memory of each report over the rows of its
    datastore.

    Empty unless reports of one model, text, memory and corpora read datastores of different sizes.
    Datastores of two domains make no curve, since their sizes cannot be compared.
    """
    groups: dict[tuple[Any, ...], list[Report]] = {}
    for report in reports:
        if not _searches_datastore(report.metrics):
            continue
        read = report.metrics["read"]
        memory = report.metrics["rows"][1]
        texts = (memory.get("control") or {"texts": []})["texts"]
        corpora = tuple(sorted((text["corpus"], text["split"]) for text in texts))
        group = (report.scored, memory["row"], read["model"], corpora)
        groups.setdefault(group, []).append(report)

    words = symbol_in_words(ROWS)
    for name in ("perplexity", "bleu"):
        lines = []
        for (text, row, *_), group_reports in groups.items():
            points = _points(name, group_reports)
            if len(points) > 1:
                lines.append(Line(f"{row}: {text}", points))
        for suffix, part in in_charts(lines):
            first_report = next(iter(groups.values()))[0]
            what = "BLEU" if name == "bleu" else measure(first_report.metrics)
            ticks = sorted({x for line in part for x, _ in line.points})
            yield Chart(
                f"{name}-by-{ROWS}{suffix}",
                f"{what} by {words}",
                f"{what} of reports that differ in their datastore; other settings as tuned in each.",
                Lines(part, words, what, ticks, even=name == "bleu"),
            )


def _searches_datastore(metrics: Mapping[str, Any]) -> bool:
    """Whether a report has a memory that was tuned, and searched while the report was made."""
    read = metrics.get("read", {})
    has_memory = len(metrics["rows"]) > 1 and "tuning" in metrics
    return has_memory and "datastore" in read and "neighbors" not in read


def _points(name: str, reports: Sequence[Report]) -> list[tuple[float, float]]:
    """Pairs (rows of the datastore, measure of the first memory), ascending; the last report of
    each size.
    """
    points = {
        report.metrics["tuning"]["largest"]["k"]: report.metrics["rows"][1][name]
        for report in reports
        if report.metrics["rows"][1].get(name) is not None
    }
    return sorted(points.items())
