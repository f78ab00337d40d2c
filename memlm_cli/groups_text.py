"""Reports over several seeds, as a table for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from memlm_cli.tables import table
from stages.evaluation.figures.row_names import COUNTING
from stages.numbers import measured, percent, tenths
from stages.reports.remarks.table import SEEDS, remarks_on

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
    groups = [{**group, "label": name} for name, group in zip(names, found["groups"], strict=True)]
    return [
        *(remark.text for remark in remarks_on(SEEDS, {**found, "groups": groups})),
        *(
            f"{one['label']}: {one['method']}, seeds {', '.join(map(str, one['seeds']))}: {' '.join(one['reports'])}"
            for one in groups
        ),
    ]


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"A{number}"


def _value(value: float) -> str:
    return measured(value, "perplexity")


def _share(value: float) -> str:
    return f"{tenths(value, '+')}%"


def _range(interval: Sequence[float], shown: Any) -> str:
    return f"[{shown(interval[0])}, {shown(interval[1])}]"
