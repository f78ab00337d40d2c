"""Streams of tasks whose models differ only in the seed of training: means, deviations, intervals, and the control."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.charts.training import FIGURES, named_figures
from stages.comparison.compare import require_same_tasks
from stages.evaluation.figures.seed_groups import seed_groups, seed_of, spread
from stages.numbers import percent
from stages.reports.tables import Cell, Group, Row, Table, score_cell, share
from stages.tasks.frequent_label import FREQUENT_LABEL, frequent_label_by_task


def compare_task_seeds(matrices: Sequence[Artifact], confidence: float) -> dict[str, Any]:
    """Mean and spread over the seeds of each figure and each test, after the last task; JSON.

    Changes are against the first row of the first group, between runs with equal seeds; None if one has no partner.

    Args:
        matrices: matrices of the same tasks, in any order.
        confidence: confidence of the intervals.
    Raises: ArtifactError if their tasks or measures differ.
    """
    for other in matrices[1:]:
        require_same_tasks(matrices[0], other)
    groups, metrics = seed_groups(matrices), matrices[0].metrics
    first = {seed_of(one): dict(_values(one, one.metrics["rows"][0]["row"])) for one in groups[0]}
    return {
        **({"score": metrics["score"]} if "score" in metrics else {}),
        "confidence": confidence,
        "groups": [_summary(group, first, confidence, own=group is groups[0]) for group in groups],
    }


def _summary(
    group: Sequence[Artifact], first: Mapping[int, Mapping[str, float]], confidence: float, *, own: bool
) -> dict[str, Any]:
    """A group and its rows; `own`: its first row is the baseline of all others."""
    names = [row["row"] for row in group[0].metrics["rows"]]
    return {
        "matrices": [one.reference for one in group],
        "seeds": [seed_of(one) for one in group],
        "method": group[0].metrics["method"],
        "control": _control(group[0]),
        "rows": [
            {"row": name, "values": _over_seeds(name, group, {} if own and name == names[0] else first, confidence)}
            for name in names
        ],
    }


def _over_seeds(
    name: str, group: Sequence[Artifact], first: Mapping[int, Mapping[str, float]], confidence: float
) -> dict[str, Any]:
    """Mean and spread over the seeds of each value of a row, and of its change."""
    runs = [(first.get(seed_of(one), {}), dict(_values(one, name))) for one in group]
    found = {}
    for key in runs[0][1]:
        changes = [own[key] - other[key] for other, own in runs if key in other]
        whole = len(changes) == len(runs)
        found[key] = {
            **spread([own[key] for _, own in runs], confidence)._asdict(),
            "change": spread(changes, confidence)._asdict() if whole else None,
        }
    return found


def _values(matrix: Artifact, name: str) -> Iterator[tuple[str, float]]:
    """Figures of a row that are not None, and its last scores as `test TASK`."""
    row = next(row for row in matrix.metrics["rows"] if row["row"] == name)
    yield from ((key, row[key]) for key in FIGURES if row[key] is not None)
    yield from ((f"test {task}", score) for task, score in zip(matrix.metrics["tasks"], row["matrix"][-1], strict=True))


def _control(matrix: Artifact) -> dict[str, float]:
    """Scores of the most frequent label, with their mean as `average`; empty if there is no such control."""
    scores = frequent_label_by_task(matrix)
    by_task = {f"test {task}": score for task, score in scores.items()}
    return by_task and {"average": sum(scores.values()) / len(scores), **by_task}


def task_seeds_table(found: Mapping[str, Any]) -> Table:
    """A line for each figure and each test of each row, from the result of `compare_task_seeds`."""
    groups, sure = list[Group](), f"{percent(found['confidence'])} interval"
    for group in found["groups"]:
        for row in group["rows"]:
            lines = [_line(found, key, of, group["control"].get(key)) for key, of in row["values"].items()]
            seeds = f"seeds {', '.join(map(str, group['seeds']))}: {', '.join(group['matrices'])}"
            groups.append(Group(lines, Cell(f"{group['method']}, {row['row']}", None, seeds)))
    columns = ("after the last task", "runs", "mean", "sd", sure, "change", sure, FREQUENT_LABEL)
    caption = (
        "Means over the seeds of training. sd: of one run; in brackets: the interval of the mean, by Student's t. "
        "Change is against the first row of the first group, run by run with the same seed."
    )
    return Table("Means over seeds", columns, groups, caption)


def _line(found: Mapping[str, Any], key: str, of: Mapping[str, Any], control: float | None) -> Row:
    cell, moved = score_cell(found), of["change"]
    name = named_figures(found).get(key, key)
    cells = [Cell(name), Cell(str(of["n"]), of["n"]), cell(of["mean"]), cell(of["deviation"]), _interval(found, of)]
    cells.append(_moved(found, moved["mean"]) if moved else Cell(""))
    return Row([*cells, _interval(found, moved, moved=True) if moved else Cell(""), cell(control)])


def _moved(found: Mapping[str, Any], value: float) -> Cell:
    return Cell(f"{value:+.2f}", value) if found.get("score") else share(value, "+")


def _interval(found: Mapping[str, Any], of: Mapping[str, Any], *, moved: bool = False) -> Cell:
    if of["interval"] is None:
        return Cell("")
    edges = [(_moved(found, edge) if moved else score_cell(found)(edge)).text for edge in of["interval"]]
    return Cell(f"[{', '.join(edges)}]")
