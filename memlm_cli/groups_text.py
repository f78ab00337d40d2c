"""Reports over several seeds, as text for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from memlm_cli.tables import text_of
from stages.pages.tables import seeds_table
from stages.reports.remarks.table import SEEDS, remarks_on

Figures = Mapping[str, Any]


def groups_text(found: Figures, labels: Sequence[str] | None = None, *, terminal: bool = False) -> str:
    """Text of `compare_groups`: a line for each row of each group, then the groups.

    Args:
        labels: what the groups are called; None: A, B, …
        terminal: whether a terminal shows it.
    """
    names = labels or [chr(ord("A") + n) if n < 26 else f"A{n}" for n in range(len(found["groups"]))]
    table = seeds_table(found, names)
    groups = [{**group, "label": name} for name, group in zip(names, found["groups"], strict=True)]
    remarks = [remark.text for remark in remarks_on(SEEDS, {**found, "groups": groups})]
    heads = [f"{one.head.text}: {one.head.soft}" for one in table.groups if one.head]
    return "\n".join([text_of(table, "", terminal=terminal), "", *remarks, *heads])
