"""Readings as they are typed."""

import re

import pytest

from pipelines.options import docstring
from stages.errors import UsageError
from stages.evaluation.config import EvaluateConfig
from stages.retrieval.grammar import NAMED, parse_readings
from stages.retrieval.registries import SOURCES
from stages.tasks import READINGS
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.grammar import grids, parse_choices, parse_reading


@pytest.mark.parametrize("name", READINGS.names())
def test_a_name_alone_is_a_reading_with_defaults(name: str) -> None:
    assert parse_reading(name).spelled == name and parse_reading(f"{name}:") == parse_reading(name)


def test_settings_are_those_of_the_reading() -> None:
    found = parse_reading("mbpa:k=3,steps=0,lr=0.5")
    own = {"name": "mbpa", "k": 3, "steps": 0, "lr": 0.5, "anchor": 0.001, "weight": "equal"}
    own |= {"part": "all"}
    assert found.model_dump() == own
    assert parse_reading(found.spelled) == found


@pytest.mark.parametrize(
    "text", ["mbpa:k=1234567", "mbpa:lr=0.00123456789", "episodic:weight=0.3333333333333333"]
)
def test_no_digit_is_lost(text: str) -> None:
    assert parse_reading(text).spelled == text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mbpa:k=3,k=4", "twice"),
        ("mpba", "mbpa"),
        ("none:k=2", "nothing"),
        ("mbpa:x=1", "steps"),
        ("mbpa:k=0", "k"),
        ("mbpa:k", "k"),
        ("mbpa:k=tune", "k=8/32"),
        ("mbpa:lr=0.1/0.1", "twice"),
        ("mbpa:lr=0.1/-1", "lr"),
        ("mbpa:lr=1e300", "lr"),
        ("coarse:anchor=1e300", "anchor"),
        ("none:lr=tune", "nothing"),
        ("mbpa:steps=1000001", "steps"),
        (
            f"mbpa:k={'/'.join(map(str, range(1, 41)))},steps={'/'.join(map(str, range(1, 41)))}",
            "1,600",
        ),
    ],
)
def test_what_is_no_reading_is_refused(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        parse_choices(text)


def test_what_is_tuned_is_all_pairs_of_its_values() -> None:
    found = parse_choices("mbpa:lr=tune,k=3/4")
    tried = [(reading.lr, reading.k) for reading in found.readings]  # type: ignore[attr-defined]
    assert tried == [(lr, k) for lr in grids()["lr"] for k in (3, 4)]
    assert found.spelled == "mbpa:lr=tune,k=3/4" and parse_choices("mbpa:k=32").spelled == "mbpa"


def test_a_reading_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        EvaluateTasksConfig(memory=("mbpa", "mbpa:k=32"))


def test_two_commands_have_readings_of_their_own_and_say_which() -> None:
    """`--memory` of evaluate names sources, of evaluate-tasks what is done with the documents of
    memory.
    """
    own = docstring(EvaluateTasksConfig, "memory")
    keys = {key for name in READINGS.names() for key in READINGS.settings(name).model_fields} - {
        "name"
    }
    assert all(re.search(rf"\b{word}\b", own) for word in {*READINGS.names(), *keys})
    assert all(name in docstring(EvaluateConfig, "memory") for name in NAMED)
    with pytest.raises(UsageError) as refused:
        parse_choices("knn-lm")
    assert all(name in str(refused.value) for name in READINGS.names())
    with pytest.raises(UsageError) as refused:
        parse_readings(("mbpa",))
    assert all(name in str(refused.value) for name in SOURCES.names())
