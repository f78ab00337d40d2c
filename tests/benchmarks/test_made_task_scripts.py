"""Made tasks are what they say, and their script runs to its end on a task of seconds."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import bench_made_tasks as bench


def test_a_beginning_stands_once_and_is_asked_for_at_the_end() -> None:
    documents, parts = bench.beginnings(200, 48, np.random.default_rng(0))
    for document in documents:
        names = [place for place, word in enumerate(document) if word.startswith("n")]
        assert len(document) == 47 and len(names) == 2 and names[0] < 7 and names[1] == 46
        assert document[names[0]] == document[46]
    assert parts["end"].sum() == 200 and parts["end"][:, 46].all()


def test_pairs_that_are_asked_for_were_stated_near_or_far() -> None:
    documents, parts = bench.look_up(10, 1024, np.random.default_rng(1))
    for kind, least, most in (("near", 1, 64), ("far", 129, 1024)):
        assert parts[kind].sum() > 100
        for row, place in zip(*parts[kind].nonzero(), strict=True):
            said, before = documents[row][place], documents[row][: place - 1]
            assert documents[row][place - 1] == f"?{said.partition(':')[0]}"
            assert (
                least <= place - max(at for at, word in enumerate(before) if word == said) <= most
            )


def test_the_commoner_is_right_by_all_that_was_counted() -> None:
    documents, parts = bench.commoner(5, 512, np.random.default_rng(2))
    for row, place in zip(*parts["late"].nonzero(), strict=True):
        document, counts = documents[row], dict.fromkeys(documents[row], 0)
        questions = {
            at + step for at, word in enumerate(document) if word == "?" for step in range(4)
        }
        for at, word in enumerate(document[: place - 3]):
            counts[word] += at not in questions
        a, b = document[place - 2 : place]
        assert (
            document[place] == max(a, b, key=lambda word: counts[word]) and counts[a] != counts[b]
        )


def test_what_is_repeated_stands_one_period_before() -> None:
    documents, parts = bench.repeated(20, 64, np.random.default_rng(3))
    for row, place in zip(*parts["again"].nonzero(), strict=True):
        assert documents[row][place] == documents[row][place - bench.PERIOD]
    assert parts["again"].sum() == 20 * (63 - bench.PERIOD)


def test_facts_are_the_same_whenever_they_are_asked_for() -> None:
    (learned, _), (asked, parts) = (
        bench.facts(64, 4, np.random.default_rng(seed)) for seed in (0, 1)
    )
    assert learned != asked and sorted(learned) == sorted(asked) and parts["all"].sum() == 64


@pytest.mark.endurance
def test_a_model_is_trained_and_read_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = replace(bench.TASKS["beginnings"], documents=64, tested=16, lengths=(48, 96))
    monkeypatch.setitem(bench.TASKS, "beginnings", small)
    words = [
        "beginnings",
        str(tmp_path),
        "--updates",
        "2",
        "--seeds",
        "3",
        "--models",
        "memorizing",
    ]
    monkeypatch.setattr(sys, "argv", ["bench_made_tasks", *words])
    bench.main()
    short, long = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [row["length"] for row in (short, long)] == [48, 96]
    assert all(
        0 <= row["right, end"] <= 1 and 1 < row["nats, end"] < 9 and row["seed"] == 3
        for row in (short, long)
    )
