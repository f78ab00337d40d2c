"""What a stage found out, as tables on stderr."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import figure_name, say
from memlm_cli.memory_text import reading_line
from memlm_cli.tables import show_table
from memlm_cli.training_text import training_lines
from stages.charts.symbols import symbol_in_words
from stages.evaluation.results.remarks import on_change, on_text
from stages.evaluation.results.row_names import baseline_name, with_model_named
from stages.metrics import FEW_NOTE, FEW_TOKENS, TOO_FEW_TOKENS, shown_word_perplexity
from stages.numbers import bucket_label, number, size, tenths
from stages.reporting import first_process
from stages.retrieval.hyperparameters import amounts, hyperparameters
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

Figures = Mapping[str, Any]
Column = tuple[str, dict[int, str]]
"""A header, and cells by the size or number of neighbours in whose line they stand."""

SPLIT_COLUMNS = {
    **{name: name for name in ("documents", "tokens", "types")},
    "unknown_rate": "unknown",
    "words": "words + line ends",
    **{name: name for name in ("characters", "bytes", "paragraphs")},
    "share": "share of text",
}
"""Figures of a split of tokens, and their headers; those that are no whole numbers are parts of a whole."""
FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "bytes": ("on disk", size),
    "key": ("key", lambda key: {"ffn-input": "ffn-input, what enters the last feed-forward layer"}.get(key, key)),
    "lossless": ("keys", lambda whole: "stored whole" if whole else "stored as codes"),
}
"""Figures of artifacts that are not shown under their own name, as they stand."""
SAID = ("passes", "still_falling")
"""Figures of a model that a sentence below its table tells."""
RECALL = (
    "recall@k: of the k nearest keys of each of these queries, the share that is found; queries/s@k: how many a second "
    "are answered with k of them"
)
SPLIT_WORDS = {
    "documents": "files or records, or what --documents says",
    "paragraphs": "lines up to a blank one, by which text that splits share is found",
    "types": "those of the vocabulary that a split has",
}
UNUSED_TYPES = "the vocabulary of bpe also holds all 256 bytes, and the parts of its longer types"
NOT_MEASURED = "-"
BY_CHANCE = "by chance"
DIVERGES = "diverges"
"""In place of a comparison, where a row is worse than a uniform guess."""


def show_result(artifact: "Artifact", named: bool = False, variant: str = "") -> None:
    """The tables of an artifact's kind; `named`: its reference stands on the screen already.

    Args:
        variant: of a recipe that runs in several, which one it is of: `seed 2`.
    """
    if not first_process():
        return
    title = "" if named else _joined(artifact.reference, variant)
    if artifact.kind == "tokens":
        _show_splits(title, artifact)
    elif artifact.kind == "report":
        _show_made_report(title, artifact)
    else:
        on_disk = {"bytes": artifact.manifest.bytes} if "bytes" in artifact.metrics else {}
        show_table(title, ("", ""), list(_plain({**artifact.metrics, **on_disk})))
    if artifact.kind == "model":
        for line in training_lines(artifact):
            say(line)
    if artifact.kind == "index" and "recall" in artifact.metrics:
        say(RECALL)


def _show_made_report(title: str, artifact: "Artifact") -> None:
    from memlm_cli.comparison_text import baseline_remarks

    report = artifact.json("metrics.json")
    show_report(title, report)
    for line in baseline_remarks(artifact) if report.get("baseline") else ():
        say(line)
    if any(file.startswith("figures/") for file in artifact.manifest.files):
        say(f"figures: {artifact.path / 'figures'}")


def show_report(title: str, report: Figures) -> None:
    """Rows of a report (`metrics.json`), what its memory was read with, and what more or less of it is worth."""
    report = with_model_named(report)
    show_table(_joined(title, report["split"], _scored(report)), *report_table(report))
    for line in (*on_change(report), *_memory_lines(report), *on_text(report)):
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
    """What memory was read with: of each row, where there are several, since each is tuned by itself."""
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
    columns = ["", "perplexity", "change", own, "word perplexity", "tokens/s"]
    first = rows[0]["perplexity"]
    everywhere, on_new_text = _intervals(report, "interval"), _intervals(report, "on_new_text")
    cells = [
        [
            baseline_name(report) if baseline is not None and number == 0 else row["row"],
            _value(row["perplexity"]),
            _change(row, row["perplexity"], first, None if number == 0 else everywhere.get(row["row"])),
            f"{row['accuracy']:.1%}" if _last_word(report) else _value(row["bits_per_character"]),
            _value(shown_word_perplexity(row["word_perplexity"], row["bits_per_character"])),
            _value(row["tokens_per_second"]),
        ]
        for number, row in enumerate(rows)
    ]
    if _any_repeated(report) and any(value is not None for value in outside.values()):
        columns += ["perplexity on new text", "change on new text"]
        values = [outside.get(row["row"]) for row in report["rows"]]
        values = values if baseline is None else [_outside_baseline(report), *values]
        new = values[0]
        for number, (row, value, line) in enumerate(zip(rows, values, cells, strict=True)):
            interval = None if number == 0 else on_new_text.get(row["row"])
            line += [_value(value), _change(row, value, new, interval)]
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
    cells = [["tokens", *(_value(bucket["tokens"]) for bucket in buckets["buckets"])]]
    counts = [bucket["tokens"] for bucket in buckets["buckets"]]
    for row in buckets["rows"]:
        cells.append([row["row"], *map(_of_few, row["perplexity"], counts)])
    return ["", *columns], cells


def _of_few(perplexity: float | None, tokens: int) -> str:
    """A perplexity of so many tokens."""
    if tokens < TOO_FEW_TOKENS:
        return NOT_MEASURED
    value = _value(perplexity)
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
    return f"{_value(amount)}{' (all)' if split_tokens is not None and amount >= split_tokens else ''}"


def _curve_columns(curve: Figures, settings: Sequence[str]) -> list[Column]:
    """The perplexity of a row, and those of the settings that its points have."""
    points = {point[curve["over"]]: point for point in curve["points"]}
    own = [name for name in settings if name != curve["over"] and any(name in point for point in points.values())]
    headers = {"perplexity": f"perplexity {curve['row']}", **{name: name for name in own}}
    return [
        (header, {amount: _value(point.get(name)) for amount, point in points.items()})
        for name, header in headers.items()
    ]


def _last_word(report: Figures) -> bool:
    return report.get("score") == "last-word"


def _scored(report: Figures) -> str:
    """What was scored: `4,321 tokens`, or `700 tokens, the last words of 500 passages`."""
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


def _plain(metrics: Figures) -> Iterator[tuple[str, str]]:
    """Names and values for people; figures by number (`recall`) become `recall@1`, `recall@4`, …"""
    for name, value in metrics.items():
        if name in SAID:
            continue
        if isinstance(value, Mapping):
            if all(k.isdigit() for k in value):
                for k in sorted(value, key=int):
                    if isinstance(value[k], int | float):
                        yield f"{figure_name(name)}@{k}", _value(value[k])
        elif name in FIGURES:
            shown, spelled = FIGURES[name]
            yield shown, spelled(value)
        elif isinstance(value, str | int | float):
            yield figure_name(name), _value(value)


def _show_splits(title: str, artifact: "Artifact") -> None:
    metrics, asked = artifact.metrics, artifact.config.get("vocab_size")
    types, columns = metrics["vocabulary_size"], {name for split in metrics["splits"].values() for name in split}
    fewer = f" ({asked:,} were asked for: train gives no more)" if asked and types < asked else ""
    title = _joined(title, metrics["tokenizer"], f"{types:,} types{fewer}")
    show_table(title, *splits_table(metrics["splits"]))
    words = [f"{name}: {means}" for name, means in SPLIT_WORDS.items() if name in columns]
    say("; ".join([*words, *([UNUSED_TYPES] if metrics["tokenizer"] == "bpe" else [])]))


def splits_table(splits: Mapping[str, Figures]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a row a split of tokens; rates and shares in percent."""
    columns = [name for name in SPLIT_COLUMNS if any(name in split for split in splits.values())]
    rows = [
        [split, *(_split_value(splits[split].get(name)) for name in columns)] for split in SPLITS if split in splits
    ]
    return ["split", *(SPLIT_COLUMNS[name] for name in columns)], rows


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _split_value(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, float) else _value(value)


def _value(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | str) else number(value)
