"""Two streams of tasks side by side: average, forgetting and transfer, and the accuracy on each test."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.charts.stream import FIGURES
from stages.errors import ArtifactError
from stages.reports.tables import Cell, Group, Row, Table, share


def compare_matrices(a: Artifact, b: Artifact) -> dict[str, Any]:
    """Readings of the same name, or the first of both, with their figures: of A, of B, and B - A; JSON.

    Raises: ArtifactError if they are of other tasks.
    """
    found_a, found_b = a.json("metrics.json"), b.json("metrics.json")
    if sorted(found_a["tasks"]) != sorted(found_b["tasks"]):
        raise ArtifactError(f"{a.reference} and {b.reference} are of other tasks: compare streams of the same.")
    rows_a, rows_b = ({row["row"]: row for row in found["rows"]} for found in (found_a, found_b))
    pairs = [(name, name) for name in rows_a if name in rows_b] or [(next(iter(rows_a)), next(iter(rows_b)))]
    rows = []
    for names in pairs:
        first, second = rows_a[names[0]], rows_b[names[1]]
        last = [dict(zip(f["tasks"], r["matrix"][-1], strict=True)) for f, r in ((found_a, first), (found_b, second))]
        figures = {name: _beside(first[name], second[name]) for name in FIGURES}
        tests = {task: _beside(last[0][task], last[1][task]) for task in found_a["tasks"]}
        rows.append({"rows": list(names), "figures": figures, "tests": tests})
    return {"a": a.reference, "b": b.reference, "rows": rows}


def matrices_table(found: Mapping[str, Any]) -> Table:
    """A line for each figure and each test, after the last task."""
    groups = []
    for one in found["rows"]:
        lines = {name.replace("_", " "): values for name, values in one["figures"].items()}
        lines |= {f"test {task}": values for task, values in one["tests"].items()}
        rows = [
            Row([Cell(name), share(x), share(y), share(d, "+")]) for name, (x, y, d) in lines.items() if d is not None
        ]
        groups.append(Group(rows, Cell(" and ".join(dict.fromkeys(one["rows"])))))
    return Table(f"A: {found['a']}, B: {found['b']}", ("after the last task", "A", "B", "B - A"), groups)


def _beside(a: float | None, b: float | None) -> list[float | None]:
    return [a, b, None if a is None or b is None else b - a]
