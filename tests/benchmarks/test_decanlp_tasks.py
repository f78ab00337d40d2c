"""Corpora as tasks with answers: what a turn of a dialogue is asked, and what is accepted."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks import decanlp_tasks


def turn(
    said: str,
    inform: list[list[str]],
    acts: list[object] = [],  # noqa: B006
    requests: list[list[str]] = [],  # noqa: B006
) -> dict:
    state = [{"act": "inform", "slots": inform}, {"act": "request", "slots": requests}]
    return {"transcript": said, "system_acts": acts, "belief_state": state}


def test_dialogues_stay_whole_and_answers_say_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora, out = tmp_path / "corpora", tmp_path / "out"
    turns = [
        turn("thai please", [["food", "thai"]]),
        turn("hm", [["food", "thai"]], ["area"]),
        turn(
            "west, and the phone",
            [["food", "thai"], ["area", "west"]],
            [["food", "thai"]],
            [["slot", "phone"]],
        ),
    ]
    dialogues = json.dumps([{"dialogue_idx": number, "dialogue": turns} for number in range(3)])
    asked = {"context": "a b", "question": "who ?", "answers": ["a", "b"]}
    written = {
        "sst2/{}.tsv.gz": ("train", "test", "fine film\t1\n"),
        "qasrl-gs/{}.jsonl.gz": ("dev", "test", json.dumps(asked) + "\n"),
        "woz/woz_{}_en.json.gz": ("train", "test", dialogues),
    }
    for name, (first, second, content) in written.items():
        for split in (first, second):
            path = corpora / name.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content.encode()))
    monkeypatch.setattr(
        sys, "argv", ["decanlp", str(corpora), str(out), "--train", "4", "--test", "1"]
    )
    decanlp_tasks.main()
    train, test = (
        [json.loads(line) for line in (out / "woz" / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "test")
    )
    assert [len(train), len(test)] == [6, 3] and [one["dialogue"] for one in train] == ["0"] * 3 + [
        "1"
    ] * 3
    assert [one["answer"] for one in test] == ["food: thai;", "None", "area: west; phone"]
    assert [one["text"] for one in test] == [
        "thai please",
        "area -- hm",
        "food: thai -- west, and the phone",
    ]
    assert json.loads((out / "sst" / "test.jsonl").read_text())["answer"] == "positive"
    assert json.loads((out / "qasrl" / "train.jsonl").read_text())["answers"] == ["a", "b"]
    assert decanlp_tasks.qasrl(corpora, "test", 1, longest=1) == []
    assert len(decanlp_tasks.qasrl(corpora, "test", 1, longest=4)) == 1
