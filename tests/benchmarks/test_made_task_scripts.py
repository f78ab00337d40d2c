"""The scripts of made tasks run to their end, on tasks of seconds."""

import json
import sys

import pytest

from tests.benchmarks import bench_facts, bench_look_up


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
