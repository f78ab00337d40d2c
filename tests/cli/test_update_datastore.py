"""`memlm update-datastore` between the commands before and after it."""

from pathlib import Path

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
