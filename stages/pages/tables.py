"""The tables of reports: rows, reports ranked, means over seeds, frequencies, and curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.charts.frequency import bucket_labels, counted_in
from stages.charts.reported import symbol_in_words
from stages.evaluation.figures.row_names import COUNTING
from stages.metrics import FEW_NOTE, FEW_TOKENS, TOO_FEW_TOKENS
from stages.numbers import measured, number, percent
from stages.pages.headline import COUNTING_ON_NEW_TEXT, NEW_TEXT, Ranking, Row, measures_shown, shown
from stages.pages.source import Source
from stages.reports import tables
from stages.reports.tables import Cell, Group, Note, Table, change, figure
from stages.retrieval.hyperparameters import hyperparameters

Figures = Mapping[str, Any]
HEADERS = {
    "bits_per_character": "bits/char",
    "bleu": "BLEU",
    "chrf": "chrF",
    "tokens_per_second": "tokens/s",
    "word_perplexity": "word perplexity",
    NEW_TEXT: "new text",
    COUNTING_ON_NEW_TEXT: f"{COUNTING}, new text",
}
"""Headers of measures that are not their names."""
NOT_MEASURED = "-"
BY_CHANCE = "by chance"


def results_table(sources: Sequence[Source], rows: Sequence[Row]) -> Table:
    """Every row of every report, with its change and the settings of its memory."""
    measures, columns = measures_shown(rows), ["Memory"]
    for measure in measures:
        changes = {"perplexity": ["change"], NEW_TEXT: ["change, new text"]}
        columns += [HEADERS.get(measure, measure), *changes.get(measure, ())]
    seeds = ", of several seeds by their mean" if any(row.over_seeds for row in rows) else ""
    ties = "; what lies above the lowest of its report by no more than chance may give ties"
    caption = (
        "Perplexity of every row of every report. Change is against the first row of the same report, or the baseline "
        f"above it; the lowest perplexity on the same text is marked best{seeds}"
        f"{ties if any(row.ties for row in rows) else ''}."
        f"{' Counting: a trigram of all the text that the row may read.' if COUNTING in measures else ''}"
    )
    groups = [
        Group(
            [_result(row, measures) for row in rows if row.source is source],
            Cell(source.label, None, _described(source), link=source.member.anchor),
            f"row-{source.member.id}",
        )
        for source in sources
    ]
    return Table("Results", columns, groups, caption)


def _described(source: Source) -> str:
    parts = [source.member.reference, source.metrics["method"], source.scored, f"{source.metrics['tokens']:,} tokens"]
    return ", ".join([*parts, *([source.own_text] if source.own_text else [])])


def _result(row: Row, measures: Sequence[str]) -> tables.Row:
    cells = [Cell(row.name, mark=" ".join(["best"] * row.best + ["ties"] * row.ties))]
    for measure in measures:
        cells.append(figure(shown(row, measure), measure))
        if measure == "perplexity":
            cells.append(Cell("diverges") if row.diverged else change(row.change, row.interval))
        elif measure == NEW_TEXT:
            cells.append(change(row.change_on_new_text, row.interval_on_new_text))
    return tables.Row(cells, [Note(one.sources, one.settings, one.tuned) for one in row.readings], row.best)


def ranking_table(ranking: Ranking) -> Table:
    """The lowest row of each report on one text, the lowest first."""
    rows = []
    for row in ranking.rows:
        of = row.over_seeds
        seeds = "" if of is None else f"({of.runs} seeds, sd {measured(of.deviation, 'perplexity')})"
        rows.append(
            tables.Row(
                [
                    Cell(row.source.label, link=f"row-{row.source.member.id}"),
                    Cell(row.source.metrics["method"]),
                    Cell(row.name, None, row.source.own_text),
                    figure(row.typical, "perplexity", seeds),
                    figure(row.values[COUNTING]),
                    figure(row.values["tokens_per_second"], "tokens_per_second"),
                ],
                (),
                row.best,
            )
        )
    seeds = "; reports that differ by the seed of training alone are one, with their mean"
    of_seeds = seeds if any(row.over_seeds for row in ranking.rows) else ""
    return Table(
        f"Reports on {ranking.scored}",
        ("Report", "Method", "Memory", "perplexity", COUNTING, "tokens/s"),
        [Group(rows)],
        f"{ranking.scored}: the lowest row of each report{of_seeds}.",
        frozenset(("Method", "Memory")),
    )


def seeds_table(found: Figures, labels: Sequence[str] = ()) -> Table:
    """Means over seeds, by `stages.evaluation.figures.seed_groups.compare_groups`.

    Args:
        labels: of the groups; none: their methods.
    """
    sure = f"{percent(found['confidence'])} interval"
    groups = []
    for place, group in enumerate(found["groups"]):
        seeds = f"{group['method']}, seeds {', '.join(map(str, group['seeds']))}: {', '.join(group['reports'])}"
        label = labels[place] if labels else group["rows"][-1]["row"]
        groups.append(Group([_over_seeds(row) for row in group["rows"]], Cell(label, None, seeds)))
    caption = (
        f"{found['split']}: means over the seeds of training. sd: of one run; in brackets: the {sure} of the mean, by "
        f"Student's t. Change is against {found['groups'][0]['rows'][0]['row']} of the first group, run by run with "
        "the same seed. Counting: a trigram of all the text that a row may read."
    )
    columns = ("Memory", "runs", "perplexity", "sd", sure, "change", sure, COUNTING)
    return Table("Means over seeds", columns, groups, caption)


def _over_seeds(row: Figures) -> tables.Row:
    of, moved = row["perplexity"], row["change"]
    cells = [Cell(row["row"]), Cell(str(of["n"]), of["n"]), figure(of["mean"]), figure(of["deviation"])]
    cells.append(_interval(of["interval"], lambda edge: measured(edge, "perplexity")))
    cells.append(change(moved and moved["mean"]))
    cells.append(_interval(moved and moved["interval"], lambda edge: change(edge).text))
    return tables.Row([*cells, figure(row.get("counting"))])


def _interval(edges: Sequence[float] | None, shown: Callable[[float], str]) -> Cell:
    return Cell("") if edges is None else Cell(f"[{', '.join(map(shown, edges))}]")


def bucket_table(source: Source) -> Table:
    """Perplexity of each row by how often a token stands in a text, the most frequent first."""
    frequency = source.metrics["frequency_buckets"]
    counts = [bucket["tokens"] for bucket in frequency["buckets"]]
    few = any(TOO_FEW_TOKENS <= count < FEW_TOKENS for count in counts)
    notes = [FEW_NOTE] * few + [f"{NOT_MEASURED}: of fewer than {TOO_FEW_TOKENS}"] * (min(counts) < TOO_FEW_TOKENS)
    title = f"Perplexity by how often a token stands in {counted_in(source.metrics)}"
    title += f" ({'; '.join(notes)})" if notes else ""
    rows = [tables.Row([Cell("tokens"), *(Cell(number(count), count) for count in counts)])]
    rows += [tables.Row([Cell(row["row"]), *map(_of_few, row["perplexity"], counts)]) for row in frequency["rows"]]
    return Table(
        title, ("Memory", *bucket_labels(frequency)), [Group(rows)], f"{source.label}, {source.scored}: {title}."
    )


def _of_few(perplexity: float | None, tokens: int) -> Cell:
    """A perplexity of so many tokens."""
    cell = figure(perplexity)
    if tokens < TOO_FEW_TOKENS:
        return Cell(NOT_MEASURED)
    return cell._replace(text=f"({cell.text})") if cell.text and tokens < FEW_TOKENS else cell


def curve_table(report: Figures, over: str) -> Table | None:
    """The perplexity of every row by `size`, `k` or `neighbors`, and the first one's settings; None without any.

    By `k` also how often one of k neighbours is right, and one of k rows drawn at random would be.
    """
    columns: dict[str, dict[int, str]] = {}
    for curve in report["curves"]:
        if curve["over"] == over:
            points = {point[over]: point for point in curve["points"]}
            names = [] if columns else [name for name in hyperparameters() if name != over]
            columns[f"perplexity {curve['row']}"] = _texts(points, "perplexity")
            columns |= {name: _texts(points, name) for name in names if any(name in one for one in points.values())}
    if over == "k":
        accuracies = {"retrieval accuracy@k": "retrieval_accuracy", BY_CHANCE: "retrieval_accuracy_by_chance"}
        for header, name in accuracies.items():
            shares = {int(k): f"{share:.1%}" for k, share in (report.get(name) or {}).items()}
            columns |= {header: shares} if shares else {}
    amounts = sorted({amount for values in columns.values() for amount in values})
    if not amounts:
        return None
    everything = report["tokens"] if over == "size" and report.get("score") != "last-word" else None
    lines = [[_amount(at, everything), *(one.get(at, NOT_MEASURED) for one in columns.values())] for at in amounts]
    notes = [f"{NOT_MEASURED}: not measured"] if any(NOT_MEASURED in line for line in lines) else []
    notes += [f"{BY_CHANCE}: of {over} rows drawn at random"] if BY_CHANCE in columns else []
    note = f" ({'; '.join(notes)})" if notes else ""
    return tables.plain_table(f"By {symbol_in_words(over)}, {report['split']}{note}", (over, *columns), lines)


def _texts(points: Mapping[int, Figures], name: str) -> dict[int, str]:
    """A figure of each point; empty where it has none."""
    return {amount: "" if point.get(name) is None else number(point[name]) for amount, point in points.items()}


def _amount(amount: int, everything: int | None) -> str:
    """How much of a memory is read; sizes are those of the longer of two splits, and may be more than one has."""
    return f"{number(amount)}{' (all)' if everything is not None and amount >= everything else ''}"
