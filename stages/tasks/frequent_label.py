"""A control of a stream of tasks: always answering a task's most frequent label. Free of torch."""

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.methods.config import TRAIN
from stages.tasks.plan import sample_documents

FREQUENT_LABEL = "most frequent label"
"""Name of the control in tables."""


def frequent_label_scores(matrix: Artifact) -> list[float] | None:
    """Accuracies on the scored examples of each test, answered by the most frequent label of the
    task's train split.

    Ties go to the first label.

    Returns: one accuracy per task, in the order of the matrix; None if its scores are not
        accuracies over all labels, or if its tokens are gone or damaged.
    """
    metrics = matrix.metrics
    if any(name in metrics for name in ("score", "scores", "candidates")):
        return None
    both = (TRAIN, matrix.config["split"])
    scores = []
    try:
        tokens = matrix.input("tokens")
        group = tokens.zarr("tokens.zarr")
        learnt, scored = (
            (group[f"{split}/labels"][:], group[f"{split}/tasks"][:]) for split in both
        )
    except ArtifactError:  # the scores can still be shown
        return None
    for name, count in zip(metrics["tasks"], metrics["examples"], strict=True):
        number = tokens.metrics["tasks"].index(name)
        frequent = np.bincount(learnt[0][learnt[1] == number]).argmax()
        labels = scored[0][scored[1] == number]
        scores.append(float((labels[sample_documents(len(labels), count)] == frequent).mean()))
    return scores


def frequent_label_by_task(matrix: Artifact) -> dict[str, float]:
    """`frequent_label_scores` by the names of the tasks; empty if there are none."""
    return dict(zip(matrix.metrics["tasks"], frequent_label_scores(matrix) or (), strict=False))


def below_frequent_label(matrix: Artifact) -> list[str]:
    """A sentence for each reading whose average is below that of the most frequent labels."""
    labels = frequent_label_scores(matrix)
    if labels is None:
        return []
    average = float(np.mean(labels))
    return [
        f"{row['row']}: the average of {row['average']:.1%} is below the {average:.1%} of always "
        f"answering a task's {FREQUENT_LABEL}"
        for row in matrix.metrics["rows"]
        if row["average"] < average
    ]
