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
    """Check that two matrices can be compared.

    Raises: ArtifactError if two matrices have different tasks or measures.
    """
    if _measures(a.metrics) != _measures(b.metrics):
        raise ArtifactError(
            f"{a.reference} and {b.reference} are of other tasks or measures: compare streams of the same."
        )


def _measures(metrics: Mapping[str, Any]) -> tuple[Any, ...]:
    """The score of each task, in any order; that of all; and the candidates of answers."""
    tasks = metrics["tasks"]
    scores = metrics.get("scores") or [None] * len(tasks)
    score_of_task = dict(zip(tasks, scores, strict=True))
    return score_of_task, metrics.get("score"), metrics.get("candidates")


def compare_matrices(a: Artifact, b: Artifact) -> dict[str, Any]:
    """Figures of A, of B, and B - A, for readings of the same name, or else the first of each;
    JSON.

    `control` has the same figures for the most frequent label, if there is one.

    Raises: ArtifactError if their tasks or measures differ.
    """
    require_same_tasks(a, b)
    rows_a = {row["row"]: row for row in a.metrics["rows"]}
    rows_b = {row["row"]: row for row in b.metrics["rows"]}
    pairs = [(name, name) for name in rows_a if name in rows_b]
    if not pairs:
        pairs = [(next(iter(rows_a)), next(iter(rows_b)))]

    rows = []
    for name_a, name_b in pairs:
        first = rows_a[name_a]
        second = rows_b[name_b]
        figures = {name: _pair(first[name], second[name]) for name in FIGURES}
        tests = _tests(_last_scores(a, first), _last_scores(b, second))
        rows.append({"rows": [name_a, name_b], "figures": figures, "tests": tests})

    facts: dict[str, Any] = {"a": a.reference, "b": b.reference}
    if "score" in a.metrics:
        facts["score"] = a.metrics["score"]
    facts["rows"] = rows
    control_a = frequent_label_by_task(a)
    control_b = frequent_label_by_task(b)
    if control_a and control_b:
        figures = {"average": _pair(_mean(control_a), _mean(control_b))}
        tests = _tests(control_a, control_b)
        facts["control"] = {"rows": [FREQUENT_LABEL], "figures": figures, "tests": tests}
    return facts


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)


def _last_scores(matrix: Artifact, row: Mapping[str, Any]) -> dict[str, float]:
    """Score of each task after the last one was learnt."""
    return dict(zip(matrix.metrics["tasks"], row["matrix"][-1], strict=True))


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
    rows = []
    for place, row in enumerate(group[0].metrics["rows"]):
        # a baseline does not change against itself
        is_baseline = own and place == 0
        values = _over_seeds(row["row"], group, {} if is_baseline else first, confidence)
        rows.append({"row": row["row"], "values": values})
    return {
        "matrices": [matrix.reference for matrix in group],
        "seeds": [seed_of(matrix) for matrix in group],
        "method": group[0].metrics["method"],
        "control": _control(group[0]),
        "rows": rows,
    }


def _over_seeds(
    name: str,
    group: Sequence[Artifact],
    first: Mapping[int, Mapping[str, float]],
    confidence: float,
) -> dict[str, Any]:
    """Mean and spread over the seeds of each value of a row, and of its change.

    `first`: values of the first row, by seed; a change needs the run of the same seed.
    """
    values_of_run = [dict(_values(matrix, name)) for matrix in group]
    first_of_run = [first.get(seed_of(matrix), {}) for matrix in group]

    over_seeds = {}
    for key in values_of_run[0]:
        values = [run[key] for run in values_of_run]
        changes = []
        for value, baseline in zip(values, first_of_run, strict=True):
            if key in baseline:
                changes.append(value - baseline[key])
        is_whole = len(changes) == len(values)
        change = spread(changes, confidence)._asdict() if is_whole else None
        over_seeds[key] = {**spread(values, confidence)._asdict(), "change": change}
    return over_seeds


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
