"""What is in the store, seen and cleared from the command line."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from memlm_cli.lineage_tree import parents_first
from stages.artifacts.draft import Draft
from stages.artifacts.garbage import folder_bytes
from stages.artifacts.lock import hold_lock
from stages.artifacts.store import Store
from stages.numbers import size
from stages.reporting import Silent
from tests.builders.limits import limit
from tests.builders.small_commands import Lineage, made
from tests.cli.conftest import Memlm

__all__ = ["made"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The store that `memlm` works in."""
    return Store(tmp_path / "store")


def test_an_empty_store_lists_nothing(memlm: Memlm) -> None:
    assert memlm("artifacts", "list")[:2] == (0, "")


def test_list_shows_kinds_names_and_parents(memlm: Memlm, made: Lineage) -> None:
    lines = memlm("artifacts", "list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [made.tokens, made.model, made.datastore]
    assert "small" in lines[1]
    assert made.tokens in lines[2]
    # the model leads to the tokens
    assert made.model in lines[3] and made.tokens not in lines[3]
    (entry,) = json.loads(memlm("artifacts", "list", "model", "--json").out)
    assert entry["reference"] == made.model
    assert entry["inputs"] == {"tokens": made.tokens}


def test_list_names_what_it_cannot_read(memlm: Memlm, store: Store, made: Lineage) -> None:
    (store.root / made.model / "manifest.json").write_text("{")
    listed = memlm("artifacts", "list")
    assert listed.code == 0 and made.model in listed.err
    assert made.model not in [line.split()[0] for line in listed.out.splitlines()]
    assert made.model not in memlm("artifacts", "list", "tokens").err, "of another kind"


def test_list_and_verify_tell_another_format_from_damage(
    memlm: Memlm, store: Store, made: Lineage
) -> None:
    path = store.root / made.model / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 0}))
    assert f"of another version: {made.model}" in memlm("artifacts", "list").err
    ended = memlm("artifacts", "verify", made.model)
    assert ended.code == 4 and "older than" in ended.err and "make it again" in ended.err
    assert "damaged" not in ended.err


def test_texts_that_a_trial_keeps_are_no_artifacts(
    memlm: Memlm, store: Store, made: Lineage, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("Nobody ever read of these quinces and their zealous keeper.\n")
    (store.root / "trials" / "0123456789ab").mkdir(parents=True)
    listed = memlm("artifacts", "list")
    assert (listed.code, listed.err) == (0, "")
    assert memlm("artifacts", "verify").code == 0
    assert memlm("artifacts", "holds", "--text", elsewhere).code == 0
    assert memlm("artifacts", "gc", "--unnamed", "--dry-run").code == 0


def test_show_prints_the_manifest(memlm: Memlm, made: Lineage) -> None:
    manifest = json.loads(memlm("artifacts", "show", "tokens/small").out)
    assert f"{manifest['kind']}/{manifest['id']}" == made.tokens
    line = memlm("artifacts", "show", "tokens/small", "--json").out
    assert json.loads(line) == manifest and line.count("\n") == 1
    assert memlm("artifacts", "show", "tokens/smal").code == 4


def test_show_is_a_few_lines_on_a_terminal(
    memlm: Memlm, made: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = memlm("evaluate", made.model, "--split", "train").reference
    monkeypatch.setattr("memlm_cli.work.artifacts.answers_on_terminal", lambda: True)
    for reference in (made.tokens, made.model, made.datastore, report):
        shown = memlm("artifacts", "show", reference)
        assert shown.code == 0 and reference in shown.out and "memlm" in shown.out
        assert len(shown.out.splitlines()) <= 20 and "blake2b" not in shown.out
        assert (
            json.loads(memlm("artifacts", "show", reference, "--json").out)["kind"]
            == reference.partition("/")[0]
        )


def test_graph_draws_the_lineage(memlm: Memlm, made: Lineage) -> None:
    lines = memlm("artifacts", "graph").out.splitlines()
    assert lines == [
        f"{made.tokens} (small)",
        f"└── {made.model}",
        f"    └── {made.datastore}",
    ]


def test_graph_of_one_artifact_leaves_out_strangers(
    memlm: Memlm, made: Lineage, text: Path
) -> None:
    other = memlm("tokenize", "--train", text, "--tokenizer", "char").reference
    assert other in memlm("artifacts", "graph").out
    related = memlm("artifacts", "graph", made.model).out
    assert other not in related
    assert all(reference in related for reference in (made.tokens, made.model, made.datastore))


def test_parents_come_first_whatever_the_order(store: Store, made: Lineage) -> None:
    found = parents_first(list(reversed(store.artifacts())))
    assert [a.reference for a in found] == [made.tokens, made.model, made.datastore]


def test_verify_finds_a_flipped_bit(memlm: Memlm, store: Store, made: Lineage) -> None:
    assert memlm("artifacts", "verify").code == 0
    weights = store.get(made.model).path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    ended = memlm("artifacts", "verify")
    assert ended.code == 4
    assert "model.safetensors" in ended.err
    assert made.model in ended.err.splitlines()[-1]
    assert made.tokens in ended.out and made.model not in ended.out
    assert memlm("build-datastore", made.model, "--key", "hidden").code == 4
    assert memlm("artifacts", "rm", "--force", made.model).code == 0


def test_copies_go_to_a_bucket_and_come_back(
    memlm: Memlm, store: Store, made: Lineage, tmp_path: Path
) -> None:
    url, other = f"file://{tmp_path}/bucket", tmp_path / "other"
    lineage = [made.tokens, made.model, made.datastore]
    sent = memlm("artifacts", "push", made.datastore, url)
    assert (sent.code, sent.out.split()) == (0, lineage)
    again = memlm("artifacts", "push", made.datastore, url)
    assert (again.code, again.out) == (0, "")
    assert str(url) in again.err
    received = memlm("artifacts", "pull", made.datastore, url, "--store", str(other), "--json")
    assert (received.code, json.loads(received.out)) == (0, lineage)
    assert memlm("artifacts", "verify", "--store", str(other)).code == 0
    assert memlm("artifacts", "pull", "datastore/" + "0" * 12, url).code == 3
    assert memlm("artifacts", "push", made.datastore, "nowhere").code == 2


def test_verify_shows_how_many_bytes_it_has_read(
    memlm: Memlm, store: Store, made: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, seconds_between_lines=-1.0)
    monkeypatch.setattr("memlm_cli.work.artifacts.MEGABYTE", 1)
    monkeypatch.setattr("stages.artifacts.checksums.BLOCK", 100)
    ended = memlm("artifacts", "verify", made.tokens, made.model)
    total = sum(store.open(reference).manifest.bytes for reference in (made.tokens, made.model))
    lines = ended.err.splitlines()
    assert all(
        line.startswith("artifacts verify: ") and f" of {total:,} MB read" in line for line in lines
    )
    assert len(lines) >= total // 100
    assert f"{total:,} of {total:,}" in lines[-1]
    assert [line.split()[0] for line in ended.out.splitlines()] == [made.tokens, made.model]


def test_rm_keeps_what_others_were_made_from(memlm: Memlm, store: Store, made: Lineage) -> None:
    ended = memlm("artifacts", "rm", made.model)
    assert ended.code == 2
    assert f"memlm artifacts rm {made.model} {made.datastore}" in ended.err
    index = memlm("build-index", made.datastore).reference
    both = memlm("artifacts", "rm", made.model).err
    assert f"artifacts rm {made.model} {made.datastore} {index}" in both
    assert memlm("artifacts", "rm", index).code == 0
    assert store.has("model", made.model.partition("/")[2])
    ended = memlm("artifacts", "rm", made.model, made.datastore)
    assert ended.code == 0
    assert [a.reference for a in store.artifacts()] == [made.tokens]


def test_a_size_is_of_all_files_wherever_it_is_told(
    memlm: Memlm, store: Store, made: Lineage
) -> None:
    listed = {
        one["reference"]: one["bytes"]
        for one in json.loads(memlm("artifacts", "list", "--json").out)
    }
    for reference, told in listed.items():
        assert told == sum(
            file.stat().st_size for file in (store.root / reference).rglob("*") if file.is_file()
        )
    dry = json.loads(memlm("artifacts", "gc", "--unnamed", "--dry-run", "--json").out)
    assert {one["folder"]: one["bytes"] for one in dry} == {
        one: listed[one] for one in (made.model, made.datastore)
    }
    (removed,) = json.loads(memlm("artifacts", "rm", made.datastore, "--json").out)
    assert removed["bytes"] == listed[made.datastore]


def test_gc_says_first_and_removes_then(memlm: Memlm, store: Store, made: Lineage) -> None:
    left = store.draft_folder("model", "0123456789ab")
    left.mkdir(parents=True)
    (left / "weights").write_bytes(bytes(2500))
    dry = memlm("artifacts", "gc", "--dry-run")
    assert "model/.0123456789ab-partial" in dry.out
    assert "2.5 kB" in dry.out
    assert left.is_dir()
    assert "2.5 kB" in memlm("artifacts", "gc").out
    assert not left.exists()
    assert len(store.artifacts()) == 3


def test_a_draft_says_whose_it_is(
    memlm: Memlm, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = store.draft_folder("model", "0123456789ab")
    monkeypatch.setattr("sys.argv", ["memlm", "train", "tokens/my text", "--steps", "9"])
    draft = Draft(left, {})
    draft.commit("weights")
    draft.flush()
    with hold_lock(
        store.lock_file("model", "0123456789ab"),
        "model/0123456789ab",
        wait=False,
        reporter=Silent(),
    ):
        alive = memlm("artifacts", "list", "model").err
        assert memlm("artifacts", "gc", "--json").out.strip() == "[]"
    draft.close()
    words = "memlm train 'tokens/my text' --steps 9"
    assert f"{os.getpid()} on {socket.gethostname()} ({words}" in alive
    dead = memlm("artifacts", "list").err
    assert "unfinished: model/.0123456789ab-partial" in dead
    assert f"({words}, " in dead
    assert memlm("artifacts", "list", "tokens").err.startswith("nothing in")
    kept = memlm("artifacts", "gc")
    assert kept.out.strip() == "0 B was freed" and left.is_dir()
    assert f"kept: model/.0123456789ab-partial, {size(folder_bytes(left))}, interrupted" in kept.err
    assert f"({words}, " in kept.err and "--interrupted" in kept.err
    assert f"({words}, " in memlm("artifacts", "gc", "--interrupted").out
    assert not left.exists()


def test_gc_of_unnamed_artifacts_keeps_what_names_lead_to(
    memlm: Memlm, store: Store, made: Lineage
) -> None:
    assert memlm("artifacts", "gc", "--unnamed").code == 0
    assert [a.reference for a in store.artifacts()] == [made.tokens]


def test_every_answer_can_be_json(memlm: Memlm, store: Store, made: Lineage) -> None:
    def told(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        ended = memlm("artifacts", *arguments, "--json")
        assert ended.code == code, ended.err
        return json.loads(ended.out)

    assert [entry["reference"] for entry in told("graph", made.model)] == [
        made.tokens,
        made.model,
        made.datastore,
    ]
    (store.root / made.model / "config.json").write_text("{}")
    assert told("verify", made.tokens, made.model, code=4) == [
        {"reference": made.tokens, "damaged": False, "unchecked": False},
        {"reference": made.model, "damaged": True, "unchecked": False},
    ]
    (removed,) = told("rm", made.datastore)
    assert removed["reference"] == made.datastore
    store.draft_folder("model", "0123456789ab").mkdir(parents=True)
    (garbage,) = told("gc")
    assert garbage["folder"] == "model/.0123456789ab-partial"
    assert told("gc", "--dry-run") == []


def test_a_damaged_name_hides_nothing_else(memlm: Memlm, store: Store, made: Lineage) -> None:
    (store.root / "names" / "tokens" / "odd").write_bytes(b"\xff\xfe")
    assert made.model in memlm("artifacts", "list").out
    assert memlm("artifacts", "show", "tokens/odd").code == 4


def test_rm_with_force_takes_nothing_but_artifacts_of_the_store(
    memlm: Memlm, store: Store, made: Lineage, tmp_path: Path
) -> None:
    stranger = tmp_path / "p"
    stranger.mkdir()
    (stranger / "manifest.json").write_text("{}")
    names = store.root / "names" / "model"
    names.mkdir(parents=True)
    (names / "empty").write_text("")
    (names / "away").write_text(str(stranger))
    assert memlm("artifacts", "rm", "--force", stranger).code == 2
    for name in ("empty", "away"):
        assert memlm("artifacts", "rm", "--force", f"model/{name}").code == 4
    assert (stranger / "manifest.json").exists()
    assert [a.reference for a in store.artifacts()] == [made.tokens, made.model, made.datastore]
