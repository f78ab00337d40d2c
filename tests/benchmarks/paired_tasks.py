"""Paired differences of methods that learnt the same tasks: B less A, in points.

    python -m tests.benchmarks.paired_tasks --store S A0 B0 A1 B1 …

A and B of each pair are matrices of `evaluate-tasks` on the same tests: readings of the same name
after the last task are compared. Pairs differ by seed or order. A line of JSON for each reading
has the difference of averages over tasks, of each pair and of all. `over_documents` is half of its
95 % interval for these models: documents of each task are drawn, and a document's differences are
averaged over the pairs first. `over_pairs` is that for other seeds, by Student's t; None for one
pair.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.evaluation.figures.seed_groups import spread
from stages.examples.form import answers_file
from stages.tasks.answers import read_accepted, scores_of
from stages.tasks.plan import sample_documents

NORMAL = 1.96
"""Half of a 95 % interval in standard errors."""

Scores = dict[str, np.ndarray]
"""Score of each document of a task's test, by task."""


def scores_by_reading(matrix: Artifact) -> dict[str, Scores]:
    """Scores of the documents after the last task, by reading and task."""
    tokens = matrix.input("tokens")
    split = matrix.config["split"]
    arrays = tokens.zarr("tokens.zarr")
    tasks = arrays[f"{split}/tasks"][:]
    measures = dict(zip(matrix.metrics["tasks"], matrix.metrics.get("scores", []), strict=False))
    lines = json.loads(matrix.file("answers.json").read_text("utf-8"))

    readings: dict[str, Scores] = {}
    last = matrix.metrics["after"][-1]
    for line in lines:
        if line["after"] != last:
            continue
        task = line["task"]
        (documents,) = (tasks == tokens.metrics["tasks"].index(task)).nonzero()
        chosen = documents[sample_documents(len(documents), len(line["answers"]))]
        if measures:
            accepted = read_accepted(tokens.file(answers_file(split)))
            records = [accepted[number] for number in chosen.tolist()]
            scores = np.array(scores_of(measures[task], line["answers"], records))
        else:
            labels = arrays[f"{split}/labels"][:][chosen]
            scores = (np.array(line["answers"]) == labels).astype(float)
        readings.setdefault(line["row"], {})[task] = scores
    return readings


def difference(first: Sequence[Scores], second: Sequence[Scores]) -> dict[str, Any]:
    """Mean of `second` less `first` over pairs and tasks, in points, with its intervals.

    >>> scores = {"news": np.array([0.0, 1.0]), "wiki": np.array([1.0, 0.0])}
    >>> better = {"news": np.array([1.0, 1.0]), "wiki": np.array([1.0, 0.0])}
    >>> difference([scores], [better])
    {'points': 25.0, 'by_pair': [25.0], 'over_documents': 34.65, 'over_pairs': None}
    """
    tasks = list(first[0])
    gains = {
        task: 100 * np.mean([b[task] - a[task] for a, b in zip(first, second, strict=True)], axis=0)
        for task in tasks
    }
    of_pairs = []
    for a, b in zip(first, second, strict=True):
        of_tasks = [100 * float(np.mean(b[task] - a[task])) for task in tasks]
        of_pairs.append(float(np.mean(of_tasks)))
    # Documents are drawn within a task, so variances of the tasks' means add.
    variance = sum(float(gain.var()) / len(gain) for gain in gains.values())
    interval = spread(of_pairs, 0.95).interval
    return {
        "points": round(float(np.mean(of_pairs)), 2),
        "by_pair": [round(points, 2) for points in of_pairs],
        "over_documents": round(NORMAL * variance**0.5 / len(tasks), 2),
        "over_pairs": None if interval is None else round((interval[1] - interval[0]) / 2, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("matrices", nargs="+", help="A and B of each pair, in turn")
    parser.add_argument("--store", type=Path, default=Path("memlm-store"))
    options = parser.parse_args()
    if len(options.matrices) % 2:
        parser.error("matrices come in pairs: A0 B0 A1 B1 …")
    store = Store(options.store)
    readings = [scores_by_reading(store.get(name, "matrix")) for name in options.matrices]
    for reading in readings[0]:
        of_reading = [scores[reading] for scores in readings]
        print(json.dumps({"reading": reading, **difference(of_reading[::2], of_reading[1::2])}))


if __name__ == "__main__":
    main()
