"""Titles of pages, which say the result in words, and the tables of reports: rows, ranks, means
over seeds, BLEU.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stages.charts.reported import BLEU, bucket_labels, counted_in, symbol
from stages.metrics import FEW_NOTE, FEW_TOKENS, TOO_FEW_TOKENS
from stages.numbers import number, percent, tenths
from stages.pages.headline import (
    TYPICAL,
    Ranking,
    ReportRow,
    measures_shown,
    shown,
)
from stages.pages.source import ReportSource
from stages.reports import tables
from stages.reports.measures import COUNTING, COUNTING_ON_NEW_TEXT, MEASURES, NEW_TEXT, measured
from stages.reports.remarks.gains import notably_repeated, wholly_repeated
from stages.reports.tables import Cell, Group, Table, change, figure


def page_title(sources: Sequence[ReportSource], rows: Sequence[ReportRow]) -> str:
    """Title with the lowest perplexity: `knn-lm: perplexity 70.50 on test, 10.3% [8.9%, 11.6%]
    below plain`.

    For several reports: `3 reports on test: lowest perplexity 31.48, both, 5.3% below plain`.
    Reports that differ only in their seed count as one, with their mean. A row that does not beat
    counting has no gain: `…, no better than counting (50.00)`. A row that perhaps beats it by
    chance alone says so: `…; not surely better than counting (16.44)`. If the first row loses to
    counting, that is what the gain is against: `…, 5.3% below counting (50.00)`.

    If a baseline is lower than all rows, the title names the lowest row with a memory: `trime: …,
    2.5% above plain`.
    """
    texts = _text(sources)
    reports = "Report" if len(sources) == 1 else f"{len(sources)} reports"
    lowest = _lowest(rows)
    has_several_texts = len({source.text for source in sources}) > 1
    if lowest is None or has_several_texts:
        return f"{reports} on {texts}"

    baseline = _lower_baseline(rows, lowest)
    if baseline is not None and len(sources) == 1:
        with_memory = [row for row in rows if row.memories]
        lowest = _lowest(with_memory) or lowest

    over_seeds = lowest.over_seeds
    gain, on_new_text = _gains(lowest, rows)
    flaw = _flaw(lowest)
    unsure = f"; not surely better than {_counting(lowest)}" if lowest.against_counting.ties else ""
    lower = ""
    if baseline is not None:
        value = measured(baseline.typical, "perplexity")
        lower = f"; a baseline, {baseline.name}, is lower: {value}"

    num_runs = 1 if over_seeds is None else over_seeds.runs
    if len(sources) > num_runs:
        lowest_word = "lowest mean" if over_seeds else "lowest"
        name = "" if lowest.name in lowest.source.label else f" ({lowest.name})"
        label = f"{lowest.source.label}{name}"
        of_gain = "" if baseline is not None else gain
        value = _perplexity(lowest)
        return f"{reports} on {texts}: {lowest_word} perplexity {value}, {label}{of_gain}{unsure}{flaw}{lower}"

    compared = f"{gain}{on_new_text}" or lower
    # a gain over a row without memory does not hide that a shorter window is better
    if baseline is not None and baseline.is_control and gain:
        compared += lower
    ties = ""
    for row in rows:
        if row.ties:
            ties += f"; {row.name}, {measured(row.typical, 'perplexity')}, ties"
    value = _perplexity(lowest)
    scored = lowest.source.scored
    return f"{lowest.name}: perplexity {value} on {scored}{compared}{unsure}{ties}{flaw}"


def _lower_baseline(rows: Sequence[ReportRow], lowest: ReportRow) -> ReportRow | None:
    """The lowest baseline or control whose perplexity is below that of a row; None: there is none."""
    lower = []
    for row in rows:
        if (row.baseline or row.is_control) and row.typical < lowest.typical:
            lower.append(row)
    return min(lower, key=TYPICAL, default=None)


def _perplexity(row: ReportRow) -> str:
    """`70.50`, or `70.50 (mean of 3 seeds, sd 0.21)`."""
    text = measured(row.typical, "perplexity")
    over_seeds = row.over_seeds
    if over_seeds is not None:
        deviation = measured(over_seeds.deviation, "perplexity")
        text += f" (mean of {over_seeds.runs} seeds, sd {deviation})"
    return text


def _flaw(row: ReportRow) -> str:
    """The first flaw of the report that makes its gain count for less; a row that loses to counting
    has no gain.
    """
    if row.against_counting.loses:
        return ""
    flaws = (f" ({note.short})" for note in row.source.remarks if note.short)
    return next(flaws, "")


def _gains(lowest: ReportRow, rows: Sequence[ReportRow]) -> tuple[str, str]:
    """Gain of the lowest row, and its gain on new text; each may be empty."""
    control = lowest.against_counting
    if control.loses:
        return f", no better than {_counting(lowest)}", ""

    first = next(row for row in rows if row.source is lowest.source)
    # a model that loses to counting is no baseline that a gain could be against
    if first.against_counting.loses and control.counting is not None:
        return "" if control.ties else _against_control(lowest), ""

    gain = _against(lowest, first)
    on_new_text = _on_new_text(lowest, gain)
    # changes of means are against the first row of the first model
    over_seeds = lowest.over_seeds
    if over_seeds and over_seeds.first != rows[0].source.member.reference:
        gain = ""
    return gain, on_new_text


def short_title(sources: Sequence[ReportSource], rows: Sequence[ReportRow]) -> str:
    """The result in one short sentence: `neural-cache is best on corpus test, 32.4% below plain`."""
    text = _text(sources)
    lowest = _lowest(rows)
    if lowest is None:
        return f"Memory tried on {text}"
    control = lowest.against_counting
    if control.loses:
        return f"{lowest.name} is no better than counting on {text}"

    change = (lowest.over_seeds or lowest).change
    is_room_better = any(row.is_control and row.typical < lowest.typical for row in rows)
    if change is None or change >= 0 or is_room_better:
        return f"No memory gains on {text}"
    if control.ties:
        return f"{lowest.name} is not surely better than counting on {text}"

    baseline = rows[0].name
    gain = -change
    # a model that loses to counting is no baseline that a gain could be against
    if rows[0].against_counting.loses and control.change is not None:
        baseline = COUNTING
        gain = -control.change
    read_before = ", read before" if wholly_repeated(lowest.source.metrics) else ""
    return f"{lowest.name} is best on {text}{read_before}, {tenths(gain)}% below {baseline}"


def _text(sources: Sequence[ReportSource]) -> str:
    return ", ".join(dict.fromkeys(source.scored for source in sources))


def _lowest(rows: Sequence[ReportRow]) -> ReportRow | None:
    """The row of the reports themselves with the lowest perplexity; None if no perplexity is
    finite.
    """
    finite = [
        row
        for row in rows
        if not (row.baseline or row.is_control) and row.values["perplexity"] is not None
    ]
    return min(finite, key=TYPICAL, default=None)


def _against(row: ReportRow, first: ReportRow) -> str:
    """`, 10.3% [8.9%, 11.6%] below plain`, or above a baseline; empty if the first row is the
    lowest.

    Over several seeds, the change of the mean.
    """
    # changes of means are not against a baseline
    if row.over_seeds and first.baseline:
        return ""
    figures = row.over_seeds or row
    change = figures.change
    if change is None or (change >= 0 and not first.baseline):
        return ""

    edges = list(figures.interval or ())
    if change < 0:
        # how far it lies below: the larger fall is the upper edge
        edges = [-edge for edge in reversed(edges)]
    percentages = ", ".join(f"{tenths(edge)}%" for edge in edges)
    interval = f" [{percentages}]" if edges else ""
    direction = "below" if change < 0 else "above"
    return f", {tenths(abs(change))}%{interval} {direction} {first.name}"


def _on_new_text(row: ReportRow, gain: str) -> str:
    """`; on new text 5.3%`, if much of the text was read before; empty for a mean over seeds.

    If all of it was, there is no new text.
    """
    change = row.change_on_new_text
    falls = gain and not row.over_seeds and (row.change or 0) < 0
    if falls and wholly_repeated(row.source.metrics):
        return "; all of this text was read before"
    if not falls or change is None or not notably_repeated(row.source.metrics):
        return ""
    return f"; on new text {tenths(-change)}%"


def _counting(row: ReportRow) -> str:
    """`counting (50.00)`, or `counting on new text (22.10, counting 22.08)` if perplexities on new
    text are compared.
    """
    return row.against_counting.words(lambda value: measured(value, "perplexity"))


def _against_control(row: ReportRow) -> str:
    """`, 5.3% [2.1%, 8.0%] below counting (50.00)`, of a row that beats its control."""
    control = row.against_counting
    assert control.change is not None, "there is a control, and the row beats it"
    edges = [f"{tenths(-edge)}%" for edge in reversed(control.interval or ())]
    around = f" [{', '.join(edges)}]" if edges else ""
    return f", {tenths(-control.change)}%{around} below {_counting(row)}"


Figures = Mapping[str, Any]
NOT_MEASURED = "-"


def results_table(sources: Sequence[ReportSource], rows: Sequence[ReportRow]) -> Table:
    """Every row of every report, with its change and the settings of its memory."""
    measures = measures_shown(rows)
    columns = ["Memory"]
    for measure in measures:
        changes = {"perplexity": ["change"], NEW_TEXT: ["change, new text"]}
        columns += [MEASURES.measure(measure).title, *changes.get(measure, ())]
    unsure = "Perplexity: how unsure a model is of the next token; lower is better. "
    caption = unsure if "perplexity" in measures else ""
    caption += "Change is against the first row of a report, or its baseline. Best: lowest on the same text."
    caption += " Ties: above it by chance, perhaps." if any(row.ties for row in rows) else ""
    caption += (
        " Counting: a trigram of what the row may read, to be beaten; behind it the change of a row that may not."
        if COUNTING in measures
        else ""
    )
    computed = (measure for measure in MEASURES.computed() if measure.name in measures)
    caption = " ".join([caption, *(measure.explanation for measure in computed)])
    groups = []
    for source in sources:
        facts = (
            source.member.reference,
            source.metrics["method"],
            source.scored,
            f"{source.metrics['tokens']:,} tokens",
        )
        head = Cell(
            source.label,
            None,
            ", ".join(filter(None, (*facts, source.own_text))),
            link=source.member.anchor,
        )
        rows_of_source = [_result(row, measures) for row in rows if row.source is source]
        groups.append(Group(rows_of_source, head, f"row-{source.member.id}"))
    return Table("Results", columns, groups, caption)


def _result(row: ReportRow, measures: Sequence[str]) -> tables.Row:
    """A row of the table: its name, its measures, and its change behind the perplexity."""
    marks = []
    if row.best:
        marks.append("best")
    if row.ties:
        marks.append("ties")

    cells = [Cell(row.name, mark=" ".join(marks))]
    for measure in measures:
        cells.append(figure(shown(row, measure), measure, _unsure(row, measure)))
        if measure == "perplexity":
            is_diverged = row.reported.get("diverged")
            cells.append(Cell("diverges") if is_diverged else change(row.change, row.interval))
        elif measure == NEW_TEXT:
            cells.append(change(row.change_on_new_text, row.interval_on_new_text))
    return tables.Row(cells, row.notes, row.best)


def _unsure(row: ReportRow, measure: str) -> str:
    """`-2.4% [-5.2, +0.4]` behind the control of a row that does not surely beat it."""
    control = row.against_counting
    compared = COUNTING_ON_NEW_TEXT if control.on_new_text else COUNTING
    is_sure = not control.loses and not control.ties
    if measure != compared or is_sure or control.interval is None:
        return ""
    return change(control.change, control.interval).plain


def ranking_table(ranking: Ranking) -> Table:
    """The lowest row of each report on one text, sorted by perplexity."""
    rows = []
    for row in ranking.rows:
        of = row.over_seeds
        seeds = (
            "" if of is None else f"({of.runs} seeds, sd {measured(of.deviation, 'perplexity')})"
        )
        cells = [
            Cell(row.source.label, link=f"row-{row.source.member.id}"),
            Cell(row.source.metrics["method"]),
            Cell(row.name, None, row.source.own_text),
            figure(row.typical, "perplexity", seeds),
            figure(row.values[COUNTING]),
        ]
        rows.append(tables.Row(cells, (), row.best))
    seeds = "; reports that differ by the seed of training alone are one, with their mean"
    of_seeds = seeds if any(row.over_seeds for row in ranking.rows) else ""
    return Table(
        f"Reports on {ranking.scored}",
        ("Report", "Method", "Memory", "perplexity", COUNTING),
        [Group(rows)],
        f"{ranking.scored}: the lowest row of each report{of_seeds}.",
        frozenset(("Method", "Memory")),
    )


def seeds_table(comparison: Figures, labels: Sequence[str] = ()) -> Table:
    """Means over seeds, from `stages.evaluation.figures.seed_groups.compare_groups`.

    Args:
        labels: names of the groups; if empty, the name of the last row of each.
    """
    groups = []
    for place, group in enumerate(comparison["groups"]):
        numbers = ", ".join(map(str, group["seeds"]))
        seeds = f"{group['method']}, seeds {numbers}: {', '.join(group['reports'])}"
        label = labels[place] if labels else group["rows"][-1]["row"]
        rows = [_over_seeds(row) for row in group["rows"]]
        groups.append(Group(rows, Cell(label, None, seeds)))

    first_row = comparison["groups"][0]["rows"][0]["row"]
    caption = (
        f"{comparison['split']}: means over the seeds of training. \N{PLUS-MINUS SIGN}: the "
        f"{percent(comparison['confidence'])} interval of the mean, by Student's t; sd: of one run. Change is against "
        f"{first_row} of the first group, run by run with the same seed. Counting: a "
        "trigram of all the text that a row may read."
    )
    columns = ("Memory", "perplexity", "sd", "change", COUNTING)
    return Table("Means over seeds", columns, groups, caption)


def _over_seeds(row: Figures) -> tables.Row:
    of = row["perplexity"]
    moved = row["change"] or {"mean": None, "interval": None}
    cells = [
        Cell(row["row"]),
        figure(
            of["mean"], soft=half_width(of["interval"], lambda half: measured(half, "perplexity"))
        ),
        figure(of["deviation"]),
        change(moved["mean"])._replace(soft=half_width(moved["interval"], tenths)),
        figure(row.get("counting")),
    ]
    return tables.Row(cells)


def half_width(edges: Sequence[float] | None, shown: Callable[[float], str]) -> str:
    """`± 1.73`: half the width of an interval that is symmetric about the mean."""
    return "" if edges is None else f"\N{PLUS-MINUS SIGN} {shown((edges[1] - edges[0]) / 2)}"


def bucket_table(source: ReportSource) -> Table:
    """Perplexity of each row by the frequency of a token in a text, the most frequent first."""
    frequency = source.metrics["frequency_buckets"]
    counts = [bucket["tokens"] for bucket in frequency["buckets"]]
    notes = []
    if any(TOO_FEW_TOKENS <= count < FEW_TOKENS for count in counts):
        notes.append(FEW_NOTE)
    if min(counts) < TOO_FEW_TOKENS:
        notes.append(f"{NOT_MEASURED}: of fewer than {TOO_FEW_TOKENS}")

    title = f"Perplexity by how often a token stands in {counted_in(source.metrics)}"
    if notes:
        title += f" ({'; '.join(notes)})"

    numbers = [Cell(number(count), count) for count in counts]
    rows = [tables.Row([Cell("tokens"), *numbers])]
    for row in frequency["rows"]:
        perplexities = map(_of_few, row["perplexity"], counts)
        rows.append(tables.Row([Cell(row["row"]), *perplexities]))
    columns = ("Memory", *bucket_labels(frequency))
    caption = f"{source.label}, {source.scored}: {title}."
    return Table(title, columns, [Group(rows)], caption)


def _of_few(perplexity: float | None, tokens: int) -> Cell:
    """A perplexity over `tokens` tokens: in brackets if they are few, left out if they are too few."""
    cell = figure(perplexity)
    if tokens < TOO_FEW_TOKENS:
        return Cell(NOT_MEASURED)
    return cell._replace(text=f"({cell.text})") if cell.text and tokens < FEW_TOKENS else cell


def bleu_tables(source: ReportSource) -> Iterator[Table]:
    """Every candidate, in the order tried, of each row whose settings were chosen by BLEU."""
    tuning = source.metrics.get("tuning", {})
    figures = tuning.get(BLEU) or {"rows": []}
    for row in figures["rows"]:
        candidates = row["candidates"]
        names = [name for name in candidates[0] if name != BLEU]
        # `max` takes the first of equals
        best = max(range(len(candidates)), key=lambda place: candidates[place][BLEU])

        rows = []
        for place, candidate in enumerate(candidates):
            is_best = place == best
            settings = [_setting_cell(candidate[name]) for name in names]
            score = figure(candidate[BLEU], BLEU)._replace(mark="best" if is_best else "")
            rows.append(tables.Row([*settings, score], (), is_best))

        tried = f"{figures['sentences']:,} sentences of {tuning['split']}"
        caption = (
            f"{tried}, translated with each candidate. The best was chosen, the first of equals."
        )
        columns = (*map(symbol, names), MEASURES.measure(BLEU).title)
        yield Table(f"BLEU of {row['row']}", columns, [Group(rows)], caption)


def _setting_cell(value: float | None) -> Cell:
    """A setting of a candidate; None: without limit."""
    text = "\N{INFINITY}" if value is None else number(value)
    return Cell(text, value)
