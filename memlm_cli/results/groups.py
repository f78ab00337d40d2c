"""Means over seeds, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from memlm_cli.tables import table
from stages.pages.costs import costs_table
from stages.pages.tables import seeds_table
from stages.reports.remarks.table import SEEDS, remarks_on


def groups_text(
    comparison: Mapping[str, Any], labels: Sequence[str] | None = None, *, terminal: bool = False
) -> str:
    """Text for `compare_groups`: a line for each row of each group, then the groups.

    Args:
        labels: names of the groups; None: A, B, …
        terminal: whether it is for a terminal.
    """
    groups = comparison["groups"]
    names = labels or letters(len(groups))
    shown = seeds_table(comparison, names)
    lines = table("", shown.columns, shown.lines, terminal=terminal)

    labelled = [{**group, "label": name} for name, group in zip(names, groups, strict=True)]
    figures = {**comparison, "groups": labelled}
    remarks = [remark.text for remark in remarks_on(SEEDS, figures)]
    heads = []
    for group in shown.groups:
        if group.head:
            heads.append(f"{group.head.text}: {group.head.soft}")
    return "\n".join([lines, "", shown.caption, *remarks, *heads])


def costs_text(comparison: Mapping[str, Any], labels: Sequence[str], *, terminal: bool) -> str:
    """Text for `compare_groups`: what each row gains and costs; arguments as of `groups_text`."""
    shown = costs_table(comparison, labels)
    lines = table("", shown.columns, shown.lines, terminal=terminal)
    return f"{lines}\n\n{shown.caption}"


def letters(count: int) -> list[str]:
    """Names of groups that have none: A, B, …"""
    return [chr(ord("A") + number) if number < 26 else f"A{number}" for number in range(count)]
