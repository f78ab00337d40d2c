"""The control of a stream of tasks, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from stages.errors import ArtifactError
from stages.tasks.frequent_label import below_frequent_label, frequent_label_scores

LABELS = {
    "train/labels": [0, 0, 1, 2, 3, 3, 3],
    "train/tasks": [0, 0, 0, 1, 1, 1, 1],
    "test/labels": [0, 1, 1, 1, 3, 0, -1],
    "test/tasks": [0, 0, 0, 0, 1, 1, 1],
}
TOKENS = SimpleNamespace(
    metrics={"tasks": ["colours", "beasts"]},
    zarr=lambda _: {name: np.array(values) for name, values in LABELS.items()},
)


def matrix(**metrics: object) -> SimpleNamespace:
    of = {"tasks": ["beasts", "colours"], "examples": [3, 4], **metrics}
    return SimpleNamespace(metrics=of, config={"split": "test"}, input=lambda _: TOKENS)


def test_the_label_that_train_has_most_of_is_held_against_each_test() -> None:
    assert frequent_label_scores(matrix()) == [1 / 3, 1 / 4]  # 3 of (3, 0, none); 0 of (0, 1, 1, 1)


def test_only_the_scored_examples_count() -> None:
    found = frequent_label_scores(matrix(examples=[1, 1]))
    assert found is not None and set(found) <= {0.0, 1.0}


@pytest.mark.parametrize(
    "other", [{"score": "perplexity"}, {"scores": ["f1", "f1"]}, {"candidates": True}]
)
def test_scores_that_are_no_accuracies_among_all_labels_have_none(other: dict[str, object]) -> None:
    assert frequent_label_scores(matrix(**other)) is None


def test_without_tokens_there_is_none() -> None:
    def gone(role: str) -> None:
        raise ArtifactError(role)

    made = matrix()
    made.input = gone
    assert frequent_label_scores(made) is None


def test_a_reading_that_is_worse_is_named() -> None:
    rows = [{"row": "none", "average": 0.28}, {"row": "mbpa", "average": 0.3}]
    (sentence,) = below_frequent_label(matrix(rows=rows))
    assert sentence.startswith("none: the average of 28.0% is below the 29.2%")
    assert below_frequent_label(matrix(rows=rows, candidates=True)) == []
