"""The scripts of made tasks run to their end, on tasks of seconds."""

import json
import sys

import pytest
import torch

from stages.models.language_model import LanguageModel
from tests.benchmarks import bench_facts, bench_look_up, bench_made_tasks, bench_sorting
from tests.stages.models.layers.made_tasks import learned


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
    words = ["--begin", "3", "--lengths", "150", "300", "--updates", "2", "1"]
    monkeypatch.setattr(sys, "argv", ["bench_sorting", *words, "--models", "transformer-xl", "infinity-sticky"])
    monkeypatch.setattr(bench_sorting, "ROWS", 2)
    monkeypatch.setattr(bench_sorting, "TESTED", 8)
    bench_sorting.main()
    rows = lines(capsys)
    whole = {str(length): row["right"] for row in rows if (length := row.get("counting")) in (150, 300)}
    assert whole["150"] == {"150": 1.0, "300": whole["150"]["300"]}  # type: ignore[index]
    assert whole["300"] == {"150": 1.0, "300": 1.0}
    assert [row["model"] for row in rows if "model" in row] == ["transformer-xl", "infinity-sticky"]
    assert all(set(row["right"]) == {"150", "300"} for row in rows)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", list(bench_sorting.MODELS))
def test_models_that_sort_go_on_from_the_same_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_sorting, "ROWS", 2)
    begun, own = bench_sorting.sorts_one_segment(2, 5e-3, 0), bench_sorting.MODELS[name]
    same = bench_sorting.named_within(begun, own)
    goes_on = learned(bench_sorting.shaped(own), iter(()), 0, 5e-3, bench_sorting.SEGMENT, 1, same)
    whole = LanguageModel(bench_sorting.shaped({})).eval()
    whole.load_state_dict(begun)
    tokens = next(bench_sorting.documents(bench_sorting.SEGMENT - bench_sorting.TYPES - 1, 1, 7)).tokens
    with torch.no_grad():
        torch.testing.assert_close(goes_on.encode(tokens).hidden, whole.encode(tokens).hidden)


def test_documents_grow_when_sorting_is_learned() -> None:
    grown = bench_sorting.growing((150, 300), (2, 1), 0)
    assert [batch.tokens.shape[1] - bench_sorting.TYPES - 1 for batch in grown] == [150, 150, 300]
    assert bench_sorting.segments(107) == 1
    assert bench_sorting.segments(150) == 2
