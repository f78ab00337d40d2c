"""Means over seeds, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from memlm_cli.tables import table
from stages.pages.tables import seeds_table
from stages.reports.remarks.table import SEEDS, remarks_on


def groups_text(
    found: Mapping[str, Any], labels: Sequence[str] | None = None, *, terminal: bool = False
) -> str:
    """Text for `compare_groups`: a line for each row of each group, then the groups.

    Args:
        labels: names of the groups; None: A, B, …
        terminal: whether it is for a terminal.
    """
    names = labels or [_letter(number) for number in range(len(found["groups"]))]
    shown = seeds_table(found, names)
    groups = [{**group, "label": name} for name, group in zip(names, found["groups"], strict=True)]
    remarks = [remark.text for remark in remarks_on(SEEDS, {**found, "groups": groups})]
    heads = [f"{group.head.text}: {group.head.soft}" for group in shown.groups if group.head]
    lines = table("", shown.columns, shown.lines, terminal=terminal)
    return "\n".join([lines, "", shown.caption, *remarks, *heads])


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"A{number}"
