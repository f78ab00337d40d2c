"""Tables of a report, on stderr."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import say
from memlm_cli.memory_text import reading_line
from memlm_cli.tables import cell_text, show_table, title_of
from stages.charts.reported import symbol_in_words
from stages.evaluation.figures.row_names import (
    COUNTING,
    baseline_name,
    counting,
    counting_on_new_text,
    with_model_named,
)
from stages.metrics import FEW_NOTE, FEW_TOKENS, TOO_FEW_TOKENS, shown_word_perplexity
from stages.numbers import bucket_label, tenths
from stages.reports.remarks.table import REPORT, remarks_on
from stages.retrieval.hyperparameters import amounts, hyperparameters

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

Figures = Mapping[str, Any]
Column = tuple[str, dict[int, str]]
"""A header, and cells by the size or number of neighbours in whose line they stand."""
NOT_MEASURED = "-"
BY_CHANCE = "by chance"
DIVERGES = "diverges"
"""In place of a comparison, where a row is worse than a uniform guess."""


def show_made_report(title: str, artifact: "Artifact") -> None:
    """The tables of a report that is in the store, and where its figures lie."""
    from memlm_cli.comparison_text import baseline_remarks

    report = artifact.json("metrics.json")
    show_report(title, report)
    for remark in baseline_remarks(artifact):
        say(remark.text)
    if any(file.startswith("figures/") for file in artifact.manifest.files):
        say(f"figures: {artifact.path / 'figures'}")


def show_report(title: str, report: Figures) -> None:
    """Rows of a report (`metrics.json`), what its memory was read with, and what more or less of it is worth."""
    report = with_model_named(report)
    show_table(title_of(title, report["split"], _scored(report)), *report_table(report))
    for line in (*(remark.text for remark in remarks_on(REPORT, report)), *_memory_lines(report)):
        say(line)
    for over in (*amounts(), "neighbors"):
        columns, cells = curves_table(report, over)
        if cells:
            notes = [f"{NOT_MEASURED}: not measured"] if any(NOT_MEASURED in line for line in cells) else []
            notes += [f"{BY_CHANCE}: of {over} rows drawn at random"] if BY_CHANCE in columns else []
            note = f" ({'; '.join(notes)})" if notes else ""
            show_table(f"By {symbol_in_words(over)}, {report['split']}{note}", columns, cells)
    buckets = report.get("frequency_buckets")
    if buckets:
        counted_in = "train" if buckets["counted_in"] == "train" else report["split"]
        counts = [bucket["tokens"] for bucket in buckets["buckets"]]
        notes = [FEW_NOTE] if any(TOO_FEW_TOKENS <= count < FEW_TOKENS for count in counts) else []
        notes += [f"{NOT_MEASURED}: of fewer than {TOO_FEW_TOKENS}"] if min(counts) < TOO_FEW_TOKENS else []
        note = f" ({'; '.join(notes)})" if notes else ""
        show_table(f"Perplexity by how often a token stands in {counted_in}{note}", *buckets_table(buckets))


def _memory_lines(report: Figures) -> Iterator[str]:
    """Lines about the memory of each row, since each is tuned by itself."""
    rows = [row for row in report["rows"] if row.get("memories")]
    if len(rows) < 2:
        yield from (f"memory: {reading_line(memory, _split_tokens(report))}" for memory in report["memories"])
    for row in rows if len(rows) > 1 else ():
        readings = (reading_line(memory, _split_tokens(report)) for memory in row["memories"])
        yield f"{row['row']}: {'; then '.join(readings)}"


def _split_tokens(report: Figures) -> int | None:
    """Tokens of the split that was scored; None where last words alone count."""
    return None if _last_word(report) else report["tokens"]


def report_table(report: Figures) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a row for the model alone and for each memory; perplexity against the first row."""
    outside, baseline = _by_row(report.get("outside_repeated_paragraphs")), report.get("baseline")
    rows = report["rows"] if baseline is None else [baseline["row"], *report["rows"]]
    own = "accuracy" if _last_word(report) else "bits/char"
    columns = ["", "perplexity", "change", COUNTING, own, "word perplexity", "tokens/s"]
    first = rows[0]["perplexity"]
    everywhere, on_new_text = _intervals(report, "interval"), _intervals(report, "on_new_text")
    cells = [
        [
            baseline_name(report) if baseline is not None and number == 0 else row["row"],
            cell_text(row["perplexity"]),
            _change(row, row["perplexity"], first, None if number == 0 else everywhere.get(row["row"])),
            cell_text(counting(row)),
            f"{row['accuracy']:.1%}" if _last_word(report) else cell_text(row["bits_per_character"]),
            cell_text(shown_word_perplexity(row["word_perplexity"], row["bits_per_character"])),
            cell_text(row["tokens_per_second"]),
        ]
        for number, row in enumerate(rows)
    ]
    if _any_repeated(report) and any(value is not None for value in outside.values()):
        columns += ["perplexity on new text", "change on new text", f"{COUNTING} on new text"]
        values = [outside.get(row["row"]) for row in report["rows"]]
        values = values if baseline is None else [_outside_baseline(report), *values]
        new = values[0]
        for number, (row, value, line) in enumerate(zip(rows, values, cells, strict=True)):
            interval = None if number == 0 else on_new_text.get(row["row"])
            line += [cell_text(value), _change(row, value, new, interval), cell_text(counting_on_new_text(row))]
    return _filled(columns, cells)


def _any_repeated(report: Figures) -> bool:
    """Whether new text is not simply all of it."""
    outside = report.get("outside_repeated_paragraphs") or {}
    return bool(outside.get("repeated_share"))


def _filled(columns: list[str], cells: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The same without the columns that hold nothing; the first names the rows."""
    held = [place for place in range(len(columns)) if not place or any(line[place] for line in cells)]
    return [columns[place] for place in held], [[line[place] for place in held] for line in cells]


def _outside_baseline(report: Figures) -> float | None:
    """The baseline's perplexity on new text, where that is the same text."""
    theirs, own = report["baseline"]["outside_repeated_paragraphs"], report["outside_repeated_paragraphs"]
    if not theirs or _known(theirs) != _known(own):
        return None
    value: float | None = theirs["rows"][0]["perplexity"]
    return value


def _known(outside: Figures) -> set[tuple[str, str]]:
    return {(text["corpus"], text["split"]) for text in outside.get("texts", ())}


def buckets_table(buckets: Figures) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a column a bucket of tokens, the most frequent first; how many they are, and every row."""
    columns = [bucket_label(bucket["more_than"], bucket["at_most"]) for bucket in buckets["buckets"]]
    cells = [["tokens", *(cell_text(bucket["tokens"]) for bucket in buckets["buckets"])]]
    counts = [bucket["tokens"] for bucket in buckets["buckets"]]
    for row in buckets["rows"]:
        cells.append([row["row"], *map(_of_few, row["perplexity"], counts)])
    return ["", *columns], cells


def _of_few(perplexity: float | None, tokens: int) -> str:
    """A perplexity of so many tokens."""
    if tokens < TOO_FEW_TOKENS:
        return NOT_MEASURED
    value = cell_text(perplexity)
    return f"({value})" if value and tokens < FEW_TOKENS else value


def curves_table(report: Figures, over: str) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: for each `size`, `k` or `neighbors`, the perplexity of every row and the first one's settings.

    By `k` also how often one of k neighbours is right, and one of k rows drawn at random would be; no cells where the
    report has nothing of it.
    """
    columns: list[Column] = []
    for curve in report["curves"]:
        if curve["over"] == over:
            columns += _curve_columns(curve, list(hyperparameters()) if not columns else ())
    if over == "k":
        accuracies = {"retrieval accuracy@k": "retrieval_accuracy", BY_CHANCE: "retrieval_accuracy_by_chance"}
        for header, name in accuracies.items():
            shares = {int(k): f"{share:.1%}" for k, share in (report.get(name) or {}).items()}
            columns += [(header, shares)] if shares else []
    amounts = sorted({amount for _, values in columns for amount in values})
    tokens = _split_tokens(report) if over == "size" else None
    cells = [
        [_amount(amount, tokens), *(values.get(amount, NOT_MEASURED) for _, values in columns)] for amount in amounts
    ]
    return [over, *(header for header, _ in columns)], cells


def _amount(amount: int, split_tokens: int | None) -> str:
    """How much of a memory is read; sizes are those of the longer of two splits, and may be more than one has."""
    return f"{cell_text(amount)}{' (all)' if split_tokens is not None and amount >= split_tokens else ''}"


def _curve_columns(curve: Figures, settings: Sequence[str]) -> list[Column]:
    """The perplexity of a row, and those of the settings that its points have."""
    points = {point[curve["over"]]: point for point in curve["points"]}
    own = [name for name in settings if name != curve["over"] and any(name in point for point in points.values())]
    headers = {"perplexity": f"perplexity {curve['row']}", **{name: name for name in own}}
    return [
        (header, {amount: cell_text(point.get(name)) for amount, point in points.items()})
        for name, header in headers.items()
    ]


def _last_word(report: Figures) -> bool:
    return report.get("score") == "last-word"


def _scored(report: Figures) -> str:
    """The scored text: `4,321 tokens`, or `700 tokens, the last words of 500 passages`."""
    tokens = f"{report['tokens']:,} tokens"
    return f"{tokens}, the last words of {report['words']:,} passages" if _last_word(report) else tokens


def _by_row(outside: Figures | None) -> dict[str, float | None]:
    return {row["row"]: row["perplexity"] for row in outside["rows"]} if outside else {}


def _intervals(report: Figures, of: str) -> dict[str, Sequence[float] | None]:
    """The intervals of changes by row, as shares; reports of before have none."""
    return {row["row"]: row[of] for row in (report.get("change_intervals") or {"rows": ()})["rows"]}


def _change(row: Figures, value: float | None, first: float | None, interval: Sequence[float] | None) -> str:
    """How a perplexity of a row compares with the first row's: `-12.3% [-14.0, -10.1]`."""
    if row.get("diverged"):
        return DIVERGES
    if not value or not first or value == first:
        return ""
    around = "" if interval is None else f" [{', '.join(tenths(edge, '+') for edge in interval)}]"
    return f"{tenths(value / first - 1, '+')}%{around}"
