"""Scores of answers in words: cases with a known score."""

from pathlib import Path

import numpy as np
import pytest

from stages.errors import ArtifactError, UsageError
from stages.tasks.answers import (
    Accepted,
    exact,
    joint_goals,
    read_accepted,
    score_matrices,
    word_f1,
)
from stages.tasks.config import EvaluateTasksConfig


@pytest.mark.parametrize(
    ("answer", "accepted", "same", "f1"),
    [
        ("Denver Broncos", ["the Denver Broncos."], 1, 1),
        ("broncos", ["Denver Broncos", "Broncos of Denver"], 0, 2 / 3),
        ("a b b", ["b b c"], 0, 0.8),
        ("", ["x"], 0, 0),
        ("the", ["x"], 0, 0),
        ("x y", ["z", "y x"], 0, 1),
    ],
)
def test_words_are_compared_after_normalization(
    answer: str, accepted: list[str], same: int, f1: float
) -> None:
    assert exact(answer, accepted) == same and word_f1(answer, accepted) == pytest.approx(f1)


def test_a_goal_is_reached_where_all_turns_so_far_make_the_state() -> None:
    turns = [
        ("food: thai; phone", "food: thai;", 1),
        ("None", "area: west;", 0),
        ("area: west, food: thai", "None", 1),
        ("price range: cheap", "price range: dear", 0),
        ("price range : Dear ;", "address", 1),
        ("food: thai", "None", 0),
        ("food: thai", "None", 1),
        ("opens: 10:30", "opens: 9:30", 0),
    ]
    accepted = [
        Accepted((wanted,), "b" if place == 5 else "a")
        for place, (_, wanted, _) in enumerate(turns)
    ]
    assert joint_goals([own for own, _, _ in turns], accepted) == [score for _, _, score in turns]


def test_each_task_has_its_score() -> None:
    accepted = {
        "x": [Accepted(("red man",))],
        "y": [Accepted(("a: b;",), "1"), Accepted(("c: d;",), "1")],
    }
    said = {
        (0, 0, "x"): ["man"],
        (0, 0, "y"): ["a: b", "c: e"],
        (0, 1, "x"): ["red man"],
        (0, 1, "y"): ["", ""],
    }
    found = score_matrices({"y": "goal", "x": "f1"}, said, accepted)
    np.testing.assert_allclose(found, [[[0.5, 2 / 3], [0, 1]]])


def test_scores_are_of_all_tasks_or_of_one() -> None:
    for score in (("exact", "y=goal"), ("y=goal", "exact")):
        assert EvaluateTasksConfig(score=score).scores(["x", "y"]) == {"x": "exact", "y": "goal"}
    for wrong in (("z=f1",), ("f2",), ("x=",), ("f1", "exact"), ("x=f1", "x=exact")):
        with pytest.raises(UsageError):
            EvaluateTasksConfig(score=wrong).scores(["x", "y"])


def test_a_file_of_something_else_is_damage(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(ArtifactError):
        read_accepted(tmp_path / "a.jsonl")
