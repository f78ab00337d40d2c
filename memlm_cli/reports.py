"""What a stage found out, as tables on stderr."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import figure, figure_name, say
from memlm_cli.tables import show_table

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

Figures = Mapping[str, Any]


def show_result(artifact: "Artifact") -> None:
    """The tables of an artifact's kind."""
    if artifact.kind == "tokens":
        _show_splits(artifact.reference, artifact.metrics)
    elif artifact.kind == "report":
        show_report(artifact.reference, json.loads(artifact.file("metrics.json").read_text("utf-8")))
    else:
        show_table(artifact.reference, ("", ""), list(_plain(artifact.metrics)))


def show_report(title: str, report: Figures) -> None:
    """Rows of a report (`metrics.json`), what its memory was read with, and what its neighbours are worth."""
    show_table(f"{title}, {report['split']}, {report['tokens']:,} tokens", *report_table(report))
    for memory in report["memories"]:
        say(f"memory: {_told(memory)}")
    outside = report.get("outside_repeated_paragraphs")
    if outside:
        say(f"{outside['repeated_share']:.1%} of the tokens stand in paragraphs that are also in train")
    if report.get("retrieval_accuracy"):
        show_table("Neighbours", *neighbors_table(report))


def report_table(report: Figures) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a row for the model alone and for each memory; perplexity against the first row."""
    rows = report["rows"]
    outside = _by_row(report.get("outside_repeated_paragraphs"))
    columns = ["", "perplexity", "change", "bits/char", "word perplexity", "tokens/s"]
    first = rows[0]["perplexity"]
    cells = [
        [
            row["row"],
            _value(row["perplexity"]),
            _change(row["perplexity"], first),
            _value(row["bits_per_character"]),
            _value(row["word_perplexity"]),
            _value(row["tokens_per_second"]),
        ]
        for row in rows
    ]
    if outside:
        columns += ["perplexity on new text", "change"]
        new = outside.get(rows[0]["row"])
        for row, line in zip(rows, cells, strict=True):
            value = outside.get(row["row"])
            line += [_value(value), _change(value, new)]
    return columns, cells


def neighbors_table(report: Figures) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: for each k, perplexity when k neighbours are read, and how often one of k is right."""
    perplexity = {int(point["k"]): point for point in report.get("perplexity_by_k") or ()}
    accuracy = {int(k): share for k, share in report["retrieval_accuracy"].items()}
    scale = next((name for p in perplexity.values() for name in ("temperature", "theta") if name in p), "temperature")
    cells = [
        [
            str(k),
            *(_value(perplexity.get(k, {}).get(name)) for name in ("perplexity", "lambda", scale)),
            f"{accuracy[k]:.1%}" if k in accuracy else "",
        ]
        for k in sorted(perplexity.keys() | accuracy.keys())
    ]
    return ["k", "perplexity", "lambda", scale, "retrieval accuracy@k"], cells


def _by_row(outside: Figures | None) -> dict[str, float | None]:
    return {row["row"]: row["perplexity"] for row in outside["rows"]} if outside else {}


def _change(value: float | None, first: float | None) -> str:
    if not value or not first or value == first:
        return ""
    return f"{value / first - 1:+.1%}"


def _told(memory: Figures) -> str:
    """`external, k 1,024, temperature 12.3 (tuned on valid), lambda 0.25 (tuned on valid)`."""
    tuned = memory.get("tuned") or ()
    parts = ["+".join(memory["sources"])]
    for name in ("k", "temperature", "theta", "lambda", "alpha"):
        if memory.get(name) is not None:
            where = f" (tuned on {memory['tune_split']})" if name in tuned else ""
            parts.append(f"{name} {_value(memory[name])}{where}")
    return ", ".join(parts)


def _plain(metrics: Figures) -> Iterator[tuple[str, str]]:
    """Names and values for people; figures by number (`recall`) become `recall@1`, `recall@4`, …"""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            if all(number.isdigit() for number in value):
                for number in sorted(value, key=int):
                    if isinstance(value[number], int | float):
                        yield f"{figure_name(name)}@{number}", _value(value[number])
        elif isinstance(value, str | int | float):
            yield figure_name(name), _value(value)


def _show_splits(title: str, metrics: Figures) -> None:
    splits = metrics["splits"]
    names: Sequence[str] = list(dict.fromkeys(name for split in splits.values() for name in split))
    rows = [[split, *(_value(values.get(name)) for name in names)] for split, values in splits.items()]
    show_table(title, ["split", *map(figure_name, names)], rows)


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else figure(value)
