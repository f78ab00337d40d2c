"""The scripts of made tasks run to their end, on tasks of seconds."""

import json
import sys
from itertools import islice

import pytest

from tests.benchmarks import bench_facts, bench_look_up, bench_made_tasks, bench_sorting


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_facts_of_equal_passes_and_of_equal_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(bench_facts.SLOTS, "sub_keys", 32)
    monkeypatch.setattr(
        sys, "argv", ["bench_facts", "--pairs", "512", "--types", "32", "--passes", "2", "--seeds", "0"]
    )
    bench_facts.main()
    dense, slots, longer = lines(capsys)
    assert [row["model"] for row in (dense, slots, longer)] == ["dense", "slots", "dense, equal time"]
    assert dense["passes"] == slots["passes"] == 2
    assert slots["weights"] > dense["weights"] == longer["weights"]  # type: ignore[operator]


def test_pairs_looked_up_with_memories_of_other_sizes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_look_up, "LENGTH", 192)
    monkeypatch.setattr(
        sys, "argv", ["bench_look_up", "--updates", "12", "--seeds", "0", "--models", "transformer-xl", "memorizing"]
    )
    bench_look_up.main()
    rows = lines(capsys)
    assert [(row["model"], row["read"]) for row in rows] == [
        ("transformer-xl", None),
        *(("memorizing", entries) for entries in (0, 512, 1024)),
    ]
    assert all(0 <= float(str(row[part])) <= 1 for row in rows for part in ("near", "far"))


def test_the_commoner_of_two_by_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_made_tasks, "ROWS", 2)
    words = ["--length", "256", "--updates", "4", "--seeds", "0", "1", "--models", "transformer-xl"]
    monkeypatch.setattr(sys, "argv", ["bench_made_tasks", *words])
    bench_made_tasks.main()
    rows = lines(capsys)
    assert [row["counting"] for row in rows if "counting" in row] == [64, 192, 256]
    assert [(row["model"], row["seed"]) for row in rows if "model" in row] == [
        ("transformer-xl", 0),
        ("transformer-xl", 1),
    ]


def test_sorting_documents_of_several_lengths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--updates",
        "3",
        "--rounds",
        "1",
        "--lengths",
        "150",
        "300",
        "--models",
        "transformer-xl",
        "infinity-sticky",
    ]
    monkeypatch.setattr(sys, "argv", ["bench_sorting", *words])
    monkeypatch.setattr(bench_sorting, "ROWS", 2)
    monkeypatch.setattr(bench_sorting, "TESTED", 8)
    bench_sorting.main()
    rows = lines(capsys)
    whole = {str(length): row["right"] for row in rows if (length := row.get("counting")) in (150, 300)}
    assert whole["150"] == {"150": 1.0, "300": whole["150"]["300"]}  # type: ignore[index]
    assert whole["300"] == {"150": 1.0, "300": 1.0}
    assert [row["model"] for row in rows if "model" in row] == ["transformer-xl", "infinity-sticky"]
    assert all(set(row["right"]) == {"150", "300"} for row in rows)  # type: ignore[call-overload]


def test_documents_grow_when_sorting_is_learned() -> None:
    updates = list(islice(bench_sorting.growing(3, 2, (150, 300), 0), 8))
    assert [batch.tokens.shape for batch in updates[:3]] == [(32, bench_sorting.SEGMENT)] * 3
    assert [batch.tokens.shape[1] - bench_sorting.TYPES - 1 for batch in updates[3:7]] == [150, 300, 150, 300]
    assert bench_sorting.segments(150) == 2
