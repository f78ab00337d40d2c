"""Reports over several seeds, as a table for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memlm_cli.tables import table
from stages.evaluation.figures.control_text import COUNTING
from stages.evaluation.figures.remarks import unknown_rate_line
from stages.numbers import measured, percent, tenths

Figures = Mapping[str, Any]


def groups_text(found: Figures, labels: Sequence[str] | None = None, *, terminal: bool = False) -> str:
    """Text of `compare_groups`: a line for each row of each group, then the groups.

    Args:
        labels: what the groups are called; None: A, B, …
        terminal: whether a terminal shows it.
    """
    names = labels or [_letter(number) for number in range(len(found["groups"]))]
    sure = percent(found["confidence"])
    columns = ["", "", "runs", "perplexity", "sd", f"{sure} interval", "change", f"{sure} interval", COUNTING]
    cells = [
        [name if place == 0 else "", row["row"], str(len(group["reports"])), *_figures(row)]
        for name, group in zip(names, found["groups"], strict=True)
        for place, row in enumerate(group["rows"])
    ]
    return "\n".join([table("", columns, cells, terminal=terminal), "", *_notes(found, names)])


def _figures(row: Figures) -> list[str]:
    counted = row.get("counting")
    return [*_perplexity(row), *_change(row["change"]), "" if counted is None else _value(counted)]


def _perplexity(row: Figures) -> list[str]:
    of = row["perplexity"]
    return [
        _value(of["mean"]),
        *(["", ""] if of["n"] < 2 else [_value(of["deviation"]), _range(of["interval"], _value)]),
    ]


def _change(of: Figures | None) -> list[str]:
    if of is None:
        return ["", ""]
    return [_share(of["mean"]), "" if of["n"] < 2 else _range(of["interval"], _share)]


def _notes(found: Figures, names: Sequence[str]) -> list[str]:
    first = found["groups"][0]["rows"][0]["row"]
    remarks = [*_beaten(found, names)]
    remarks += [f"change: against {first} of {names[0]}, run by run with the same seed"] if _any_change(found) else []
    for name, group in zip(names, found["groups"], strict=True):
        seeds = ", ".join(map(str, group["seeds"]))
        remarks.append(
            f"{name}: {group['method']}, seed{'s'[: len(group['seeds']) != 1]} {seeds}: {' '.join(group['reports'])}"
        )
    if any(len(group["reports"]) > 1 for group in found["groups"]):
        remarks.append("intervals: of the mean over seeds, by Student's t; the scored text is the same in all runs")
    return [*remarks, *unknown_rate_line(found["split"], found["unknown_rate"])]


def _beaten(found: Figures, names: Sequence[str]) -> Iterator[str]:
    """Which rows do not beat the trigram of what they read, by the mean."""
    for name, group in zip(names, found["groups"], strict=True):
        beaten = [row["row"] for row in group["rows"] if _loses(row)]
        if beaten:
            yield f"{name}: no better than a trigram of what it reads ({COUNTING}): {', '.join(beaten)}"


def _loses(row: Figures) -> bool:
    counted = row.get("counting")
    return counted is not None and not row["perplexity"]["mean"] < counted


def _any_change(found: Figures) -> bool:
    return any(row["change"] for group in found["groups"] for row in group["rows"])


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"A{number}"


def _value(value: float) -> str:
    return measured(value, "perplexity")


def _share(value: float) -> str:
    return f"{tenths(value, '+')}%"


def _range(interval: Sequence[float], shown: Any) -> str:
    return f"[{shown(interval[0])}, {shown(interval[1])}]"
