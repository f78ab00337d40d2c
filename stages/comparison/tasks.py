"""Comparison of streams of tasks: average, forgetting and transfer, the score on each test, and the
control.

Two streams are compared with each other. Streams whose models differ only in the seed of training
are summarized:
means, deviations, intervals.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.charts.training import FIGURES, named_figures
from stages.errors import ArtifactError
from stages.evaluation.figures.seed_groups import seed_groups, seed_of, spread
from stages.numbers import percent
from stages.reports.tables import Cell, Group, Row, Table, score_cell
from stages.tasks.frequent_label import FREQUENT_LABEL, frequent_label_by_task


def require_same_tasks(a: Artifact, b: Artifact) -> None:
    """Raises: ArtifactError if two matrices have different tasks or measures."""
    measures = []
    for metrics in (a.metrics, b.metrics):
        scores = metrics.get("scores") or [None] * len(metrics["tasks"])
        by_task = dict(zip(metrics["tasks"], scores, strict=True))
        measures.append((by_task, metrics.get("score"), metrics.get("candidates")))
    if measures[0] != measures[1]:
        raise ArtifactError(
            f"{a.reference} and {b.reference} are of other tasks or measures: compare streams of the same."
        )


def compare_matrices(a: Artifact, b: Artifact) -> dict[str, Any]:
    """Figures of A, of B, and B - A, for readings of the same name, or else the first of each;
    JSON.

    `control` has the same figures for the most frequent label, if there is one.

    Raises: ArtifactError if their tasks or measures differ.
    """
    require_same_tasks(a, b)
    rows_a, rows_b = ({row["row"]: row for row in matrix.metrics["rows"]} for matrix in (a, b))
    pairs = [(name, name) for name in rows_a if name in rows_b] or [
        (next(iter(rows_a)), next(iter(rows_b)))
    ]
    rows = []
    for names in pairs:
        first = rows_a[names[0]]
        second = rows_b[names[1]]
        figures = {name: _pair(first[name], second[name]) for name in FIGURES}
        last = (
            dict(zip(matrix.metrics["tasks"], row["matrix"][-1], strict=True))
            for matrix, row in ((a, first), (b, second))
        )
        rows.append({"rows": list(names), "figures": figures, "tests": _tests(*last)})
    score = {"score": a.metrics["score"]} if "score" in a.metrics else {}
    controls = frequent_label_by_task(a), frequent_label_by_task(b)
    control = {}
    if all(controls):
        means = (sum(scores.values()) / len(scores) for scores in controls)
        figures = {"average": _pair(*means)}
        control = {
            "control": {"rows": [FREQUENT_LABEL], "figures": figures, "tests": _tests(*controls)}
        }
    return {"a": a.reference, "b": b.reference, **score, "rows": rows, **control}


def _tests(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, list[float | None]]:
    return {task: _pair(score, b[task]) for task, score in a.items()}


def _pair(a: float | None, b: float | None) -> list[float | None]:
    return [a, b, None if a is None or b is None else b - a]


def matrices_table(facts: Mapping[str, Any]) -> Table:
    """A line for each figure and each test, after the last task."""
    groups = []
    names = named_figures(facts)
    for row in [*facts["rows"], *([facts["control"]] if "control" in facts else [])]:
        lines = {names[name]: values for name, values in row["figures"].items()}
        lines |= {f"test {task}": values for task, values in row["tests"].items()}
        rows = [
            Row(
                [
                    Cell(name),
                    score_cell(facts, a),
                    score_cell(facts, b),
                    score_cell(facts, difference, "+"),
                ]
            )
            for name, (a, b, difference) in lines.items()
            if difference is not None
        ]
        groups.append(Group(rows, Cell(" and ".join(dict.fromkeys(row["rows"])))))
    return Table(
        f"A: {facts['a']}, B: {facts['b']}", ("after the last task", "A", "B", "B - A"), groups
    )


def compare_task_seeds(matrices: Sequence[Artifact], confidence: float) -> dict[str, Any]:
    """Mean and spread over the seeds of each figure and each test, after the last task; JSON.

    Changes are against the first row of the first group, between runs with equal seeds; None if one
    has no partner.

    Args:
        matrices: matrices of the same tasks, in any order.
        confidence: confidence of the intervals.
    Raises: ArtifactError if their tasks or measures differ.
    """
    for other in matrices[1:]:
        require_same_tasks(matrices[0], other)
    groups = seed_groups(matrices)
    metrics = matrices[0].metrics
    first = {
        seed_of(matrix): dict(_values(matrix, matrix.metrics["rows"][0]["row"]))
        for matrix in groups[0]
    }
    return {
        **({"score": metrics["score"]} if "score" in metrics else {}),
        "confidence": confidence,
        "groups": [_summary(group, first, confidence, own=group is groups[0]) for group in groups],
    }


def _summary(
    group: Sequence[Artifact],
    first: Mapping[int, Mapping[str, float]],
    confidence: float,
    *,
    own: bool,
) -> dict[str, Any]:
    """A group and its rows; `own`: its first row is the baseline of all others."""
    names = [row["row"] for row in group[0].metrics["rows"]]
    return {
        "matrices": [matrix.reference for matrix in group],
        "seeds": [seed_of(matrix) for matrix in group],
        "method": group[0].metrics["method"],
        "control": _control(group[0]),
        "rows": [
            {
                "row": name,
                "values": _over_seeds(
                    name, group, {} if own and name == names[0] else first, confidence
                ),
            }
            for name in names
        ],
    }


def _over_seeds(
    name: str,
    group: Sequence[Artifact],
    first: Mapping[int, Mapping[str, float]],
    confidence: float,
) -> dict[str, Any]:
    """Mean and spread over the seeds of each value of a row, and of its change."""
    runs = [(first.get(seed_of(matrix), {}), dict(_values(matrix, name))) for matrix in group]
    changes_of = {}
    for key in runs[0][1]:
        changes = [values[key] - other[key] for other, values in runs if key in other]
        whole = len(changes) == len(runs)
        changes_of[key] = {
            **spread([values[key] for _, values in runs], confidence)._asdict(),
            "change": spread(changes, confidence)._asdict() if whole else None,
        }
    return changes_of


def _values(matrix: Artifact, name: str) -> Iterator[tuple[str, float]]:
    """Figures of a row that are not None, and its last scores as `test TASK`."""
    row = next(row for row in matrix.metrics["rows"] if row["row"] == name)
    yield from ((key, row[key]) for key in FIGURES if row[key] is not None)
    yield from (
        (f"test {task}", score)
        for task, score in zip(matrix.metrics["tasks"], row["matrix"][-1], strict=True)
    )


def _control(matrix: Artifact) -> dict[str, float]:
    """Scores of the most frequent label, with their mean as `average`; empty if there is no such
    control.
    """
    scores = frequent_label_by_task(matrix)
    by_task = {f"test {task}": score for task, score in scores.items()}
    return by_task and {"average": sum(scores.values()) / len(scores), **by_task}


def task_seeds_table(facts: Mapping[str, Any]) -> Table:
    """A line for each figure and each test of each row, from the result of `compare_task_seeds`."""
    groups = list[Group]()
    sure = f"{percent(facts['confidence'])} interval"
    for group in facts["groups"]:
        for row in group["rows"]:
            lines = [
                _line(facts, key, of, group["control"].get(key))
                for key, of in row["values"].items()
            ]
            seeds = f"seeds {', '.join(map(str, group['seeds']))}: {', '.join(group['matrices'])}"
            groups.append(Group(lines, Cell(f"{group['method']}, {row['row']}", None, seeds)))
    columns = ("after the last task", "runs", "mean", "sd", sure, "change", sure, FREQUENT_LABEL)
    caption = (
        "Means over the seeds of training. sd: of one run; in brackets: the interval of the mean, by Student's t. "
        "Change is against the first row of the first group, run by run with the same seed."
    )
    return Table("Means over seeds", columns, groups, caption)


def _line(facts: Mapping[str, Any], key: str, of: Mapping[str, Any], control: float | None) -> Row:
    moved = of["change"] or {"mean": None, "interval": None}
    return Row(
        [
            Cell(named_figures(facts).get(key, key)),
            Cell(str(of["n"]), of["n"]),
            score_cell(facts, of["mean"]),
            score_cell(facts, of["deviation"]),
            _interval(facts, of),
            score_cell(facts, moved["mean"], "+"),
            _interval(facts, moved, "+"),
            score_cell(facts, control),
        ]
    )


def _interval(facts: Mapping[str, Any], of: Mapping[str, Any], sign: str = "") -> Cell:
    edges = [score_cell(facts, edge, sign).text for edge in of["interval"] or ()]
    return Cell(f"[{', '.join(edges)}]" if edges else "")
