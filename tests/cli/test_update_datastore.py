"""`memlm update-datastore` between the commands before and after it."""

from pathlib import Path

import pytest

from stages.artifacts.store import Store
from tests.cli.conftest import Memlm
from tests.stages.small_text import built_index, story, text_model, text_tokens


def test_commands_before_and_after_it_are_chained(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    index = built_index(store, text_model(store, text_tokens(store, tmp_path)))
    datastore = index.input("datastore").reference
    later = tmp_path / "later.txt"
    later.write_text(story(12, 7))
    own = index.find("encoder").input("tokens").reference
    more = memlm(
        "tokenize", "--tokenizer", own, "--train", later, "--documents", "blank-line"
    ).reference
    ended = memlm(
        "update-datastore",
        datastore,
        "--add",
        more,
        "--forget",
        "0-1",
        "--forget",
        "4",
        "--device",
        "cpu",
    )
    assert "3 of 9 " in ended.err
    made = ended.reference
    assert made.startswith("datastore/")
    assert memlm("update-datastore", "--add", more, "--forget", "4,", stdin=datastore).code == 2
    again = memlm(
        "update-datastore",
        "--add",
        more,
        "--forget",
        "0",
        "--forget",
        "1",
        "--forget",
        "4",
        stdin=datastore,
    )
    assert again.reference == made
    assert "cached" in again.err
    changed = memlm("build-index", stdin=again.out)
    report = memlm(
        "evaluate",
        "--memory",
        "external:k=5,temperature=2,lambda=0.4",
        "--device",
        "cpu",
        stdin=changed.out,
    )
    assert report.reference.startswith("report/")
    assert memlm("artifacts", "verify", made, changed.reference).code == 0


def test_what_cannot_be_done_is_code_2_or_4_and_starts_nothing(
    memlm: Memlm, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    index = built_index(store, text_model(store, text_tokens(store, tmp_path)))
    datastore = index.input("datastore").reference
    told = memlm("update-datastore", datastore, "--forget", "trian.txt")
    assert (told.code, told.out) == (2, "")
    assert "'train.txt'" in told.err
    assert memlm("update-datastore", datastore).code == 2
    assert memlm("update-datastore", datastore, "--forget", "train.txt").code == 2
    assert memlm("update-datastore", index.reference, "--forget", "1").code == 4
    assert memlm("update-datastore", datastore, "--add", "tokens/0123456789ab").code == 4
    assert memlm("build-index", datastore, "--update", index.reference).code == 2
    assert len(list((store.root / "datastore").glob("[!.]*"))) == 1


@pytest.mark.parametrize("spelled", ["anna.txt", "name:anna.txt", "@gone-anna"])
def test_the_name_of_a_forgotten_document_is_in_no_byte_of_the_new_files(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    base = text_tokens(store, tmp_path)
    model = text_model(store, base)
    for seed, name in enumerate(("anna.txt", "bert.txt", "carl.txt")):
        Path(name).write_text(story(9, seed))
    Path("gone-anna").write_text("anna.txt\n")
    letters = ("--train", "anna.txt", "--train", "bert.txt", "--train", "carl.txt")
    tokens = memlm("tokenize", "--tokenizer", base.reference, *letters).reference
    before = memlm("build-datastore", model.reference, "--tokens", tokens).reference
    assert _files_with(b"anna", store.root / tokens), "what the old datastore reads has the name"

    old = {path for path in store.root.rglob("*") if path.is_file()}
    after = memlm("update-datastore", before, "--forget", spelled, "--forget", "2").reference
    index = memlm("build-index", after).reference
    new = [path for path in store.root.rglob("*") if path.is_file() and path not in old]
    assert any(path.name == "manifest.json" for path in new)
    assert not [path for path in new if b"anna" in path.read_bytes()]
    command = store.open(after).manifest.command
    assert command == ["update-datastore", before, "--forget", "0", "--forget", "2"]

    memlm("artifacts", "push", index, f"file://{tmp_path}/bucket")
    assert (tmp_path / "bucket" / after / "manifest.json").is_file()
    assert not _files_with(b"anna", tmp_path / "bucket")
    other = tmp_path / "other"
    assert (
        memlm("artifacts", "pull", index, f"file://{tmp_path}/bucket", "--store", other).code == 0
    )
    assert memlm("artifacts", "verify", "--store", other).code == 0


def _files_with(word: bytes, folder: Path) -> list[Path]:
    """Files below a folder whose name or content has a word."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if word in path.read_bytes() or word in path.name.encode()]
