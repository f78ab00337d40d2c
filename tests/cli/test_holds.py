"""`memlm artifacts holds`, and `update-datastore --receipt`."""

import json
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from tests.cli.conftest import Memlm
from tests.stages.forgetting.conftest import documents, tokenized
from tests.stages.small_text import story, text_model


class Notes:
    """Tokens and a datastore of documents, of a model that learned from another text."""

    def __init__(self, memlm: Memlm, folder: Path) -> None:
        store = Store(folder / "store")
        public = tokenized(store, folder / "public", {"a": story(40, 8)})
        model = text_model(store, public)
        for name, text in documents().items():
            (folder / name).write_text(text)
        files = [word for name in documents() for word in ("--train", str(folder / name))]
        words = ("tokenize", "--tokenizer", public.reference, *files, "--name", "notes")
        self.tokens = memlm(*words).reference
        built = memlm("build-datastore", model.reference, "--tokens", self.tokens)
        self.datastore = built.reference


@pytest.fixture
def notes(memlm: Memlm, tmp_path: Path) -> Notes:
    return Notes(memlm, tmp_path)


def test_the_exit_code_says_whether_somebody_holds_it(
    memlm: Memlm, notes: Notes, tmp_path: Path
) -> None:
    assert memlm("artifacts", "holds", "mary.txt", "--store", tmp_path / "empty").code == 0
    held = memlm("artifacts", "holds", "mary.txt")
    assert held.code == 1
    header, *lines = held.out.splitlines()
    assert header.split() == ["artifact", "name", "holds", "where"]
    assert [line.split()[0] for line in lines] == [notes.tokens, notes.datastore]
    assert "notes" in lines[0] and "the same text in anna.txt" in lines[0]
    assert "tokens of anna.txt" in held.err

    nobody = memlm("artifacts", "holds", "mray.txt")
    assert nobody.code == 0 and nobody.out == ""
    assert "nobody in" in nobody.err and "did you mean 'mary.txt'" in nobody.err


def test_names_in_a_file_and_a_text_without_a_name(
    memlm: Memlm, notes: Notes, tmp_path: Path
) -> None:
    (tmp_path / "gone").write_text("mary.txt\nzoe.txt\n")
    found = json.loads(memlm("artifacts", "holds", f"@{tmp_path / 'gone'}", "--json").out)
    spans = [span for holder in found["holders"] for span in holder["spans"]]
    own = {span["document"] for span in spans if not span["is_copy"]}
    assert own == {"mary.txt", "zoe.txt"}
    assert found["tokens_searched"] > 500 and not found["unread"]

    held = memlm("artifacts", "holds", "--text", tmp_path / "mary.txt")
    assert held.code == 1 and "(mary.txt, anna.txt)" in held.out
    (tmp_path / "new.txt").write_text("nobody has ever written this sentence, which is new " * 9)
    assert memlm("artifacts", "holds", "--text", tmp_path / "new.txt").code == 0


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("a", "--text", "b"),
        ("@nowhere",),
        ("--text", "nowhere"),
        ("--text", "empty"),
        ("--receipt", "nowhere"),
        ("a", "--copied", "-1"),
        ("a", "--copied", "7"),
        ("--text", "b", "--copied", "0"),
    ],
)
def test_a_question_that_cannot_be_asked_is_code_2(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("\n")
    ended = memlm("artifacts", "holds", *words)
    assert (ended.code, ended.out) == (2, "")


def test_damage_is_code_4_and_the_rest_is_answered(
    memlm: Memlm, notes: Notes, tmp_path: Path
) -> None:
    manifest = tmp_path / "store" / notes.datastore / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows"', '"raws"', 1))
    ended = memlm("artifacts", "holds", "mary.txt")
    assert ended.code == 4
    assert notes.tokens in ended.out and notes.datastore not in ended.out
    assert f"{notes.datastore} could not be looked at" in ended.err


def test_a_receipt_follows_what_was_forgotten_until_nobody_holds_it(
    memlm: Memlm, notes: Notes, tmp_path: Path
) -> None:
    receipt = tmp_path / "mary.json"
    memlm("build-index", notes.datastore)
    words = ("update-datastore", notes.datastore, "--forget", "mary.txt", "--forget", "anna.txt")
    made = memlm(*words, "--receipt", receipt)
    assert "3 artifacts still hold" in made.err and str(receipt) in made.err
    again = memlm("build-index", "--name", "safe", stdin=made.out)
    checked = memlm("artifacts", "holds", "--receipt", receipt)
    assert checked.code == 1 and again.reference not in checked.out
    assert len(json.loads(receipt.read_text())["replaced"]) == 2
    assert memlm("artifacts", "rm", "tokens/notes", "--force").code == 0
    assert memlm("artifacts", "holds", "--receipt", receipt).code == 4, "its datastore is left"
    assert memlm("artifacts", "gc", "--unnamed").code == 0
    clean = memlm("artifacts", "holds", "--receipt", receipt)
    assert clean.code == 0 and "did you mean" not in clean.err
    checks = json.loads(receipt.read_text())["checks"]
    assert [len(check["remains"]) > 0 for check in checks] == [True, True, False, False]

    cached = memlm(*words[:2], "--forget", "0", "--receipt", receipt)
    assert cached.code == 4, "the old datastore is gone"


def test_a_receipt_that_cannot_be_written_starts_nothing(
    memlm: Memlm, notes: Notes, tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text("{}")
    for file in ("other.json", "nowhere/mary.json"):
        words = ("update-datastore", notes.datastore, "--forget", "mary.txt")
        assert memlm(*words, "--receipt", tmp_path / file).code == 2
    more = ("update-datastore", notes.datastore, "--add", notes.tokens)
    assert memlm(*more, "--receipt", tmp_path / "more.json").code == 2
    assert len(list((tmp_path / "store" / "datastore").glob("[!.]*"))) == 1


def test_copies_in_a_bucket_are_named_also_where_the_store_has_none(
    memlm: Memlm, notes: Notes, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}/bucket"
    assert memlm("artifacts", "push", notes.datastore, url).code == 0
    asked = ("artifacts", "holds", "mary.txt", "--bucket", url)
    lines = memlm(*asked).out.splitlines()[1:]
    both = [notes.tokens, notes.datastore]
    assert [line.split()[0] for line in lines] == [*both, *(f"{url}/{one}" for one in both)]
    assert lines[0].split("text")[1] == lines[2].split("text")[1]

    assert memlm("artifacts", "rm", *both).code == 0
    elsewhere = memlm(*asked)
    assert elsewhere.code == 1
    held = {line.split()[0]: " ".join(line.split()[1:]) for line in elsewhere.out.splitlines()[1:]}
    assert held == {f"{url}/{notes.tokens}": "text", f"{url}/{notes.datastore}": "made from it"}
    assert memlm("artifacts", "holds", "nobody.txt", "--bucket", url).code == 0


@pytest.mark.parametrize("url", ["file:///nowhere/at/all", "ftp://bucket", "s3://?"])
def test_a_bucket_that_is_not_at_hand_is_code_2(memlm: Memlm, notes: Notes, url: str) -> None:
    pytest.importorskip("obstore")
    ended = memlm("artifacts", "holds", "mary.txt", "--bucket", url)
    assert (ended.code, ended.out) == (2, "")
    assert url[:4] in ended.err
