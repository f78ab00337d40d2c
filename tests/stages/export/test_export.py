"""The folder of an export is whole or not there; its tokenizer is opened by transformers."""

import pytest

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.export.export import CARD, RECORD, check_export_folder, new_folder, write_tokenizer
from stages.lineage.corpus import token_text
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.export.made import made, texts

NOT_WRITTEN = r"which was not written by memlm export, or was changed since; name another folder"


def written(folder):
    """An export."""
    with new_folder(folder) as draft:
        (draft / CARD).write_text("a card")
        (draft / "config.json").write_text("{}")
    return folder


def test_an_earlier_export_and_an_empty_folder_may_be_replaced(tmp_path):
    check_export_folder(tmp_path / "none")
    check_export_folder(written(tmp_path / "earlier"))
    (tmp_path / "empty").mkdir()
    for name in ("none", "earlier", "empty"):
        with new_folder(tmp_path / name) as draft:
            (draft / "model.safetensors").write_bytes(b"new")
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [
            RECORD,
            "model.safetensors",
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier", "empty", "none"]


@pytest.mark.parametrize("name", [CARD, "config.json", "model.safetensors", ".git"])
def test_what_somebody_saved_into_an_export_is_left_alone(tmp_path, name):
    folder = written(tmp_path / "model")
    (folder / name).write_text("mine")
    with pytest.raises(UsageError, match=rf"holds {name}, {NOT_WRITTEN}"):
        check_export_folder(folder)


def test_what_is_saved_there_while_an_export_is_written_is_left_alone(tmp_path):
    folder = written(tmp_path / "model")
    with (
        pytest.raises(UsageError, match=rf"holds config\.json, {NOT_WRITTEN}"),
        new_folder(folder) as draft,
    ):
        (draft / "config.json").write_text("new")
        (folder / "config.json").write_text("mine")
    assert (folder / "config.json").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"blake2b": []}', '{"blake2b": {}}', None])
def test_a_folder_without_a_record_is_somebody_elses(tmp_path, record):
    folder = written(tmp_path / "model")
    (folder / RECORD).unlink() if record is None else (folder / RECORD).write_text(record)
    with pytest.raises(UsageError, match=NOT_WRITTEN):
        check_export_folder(folder)


def test_only_a_folder_of_its_own_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to(written(tmp_path / "target"))
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    for name in ("link", "dangling", "file"):
        with pytest.raises(UsageError, match="is no folder of its own"):
            check_export_folder(tmp_path / name)
    with pytest.raises(UsageError, match="there is no folder"):
        check_export_folder(tmp_path / "no/where")


def test_the_working_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is no folder of its own"):
        check_export_folder(tmp_path)


def test_what_fails_leaves_what_was_there(tmp_path):
    earlier = written(tmp_path / "earlier")
    with pytest.raises(RuntimeError), new_folder(earlier) as draft:
        (draft / "config.json").write_text("half")
        raise RuntimeError
    assert (earlier / "config.json").read_text() == "{}"
    assert list(tmp_path.iterdir()) == [earlier]


transformers = pytest.importorskip("transformers")
TEXT = "The cat sat\non the  mät, and the\n\ncat.\n"


@pytest.mark.parametrize("lowercase", [False, True], ids=["as it is", "lower case"])
@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_a_text_begins_with_eos_and_has_the_same_ids(tmp_path, kind, lowercase):
    config = TokenizeConfig(tokenizer=kind, lowercase=lowercase)
    tokens = made(Store(tmp_path / "store"), Tokenize(), config, source=[], **texts(tmp_path))
    (tmp_path / "out").mkdir()
    write_tokenizer(tokens, 64, tmp_path / "out")
    (tmp_path / "out/config.json").write_text('{"model_type": "gpt2"}')
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), token_text(tokens)
    assert theirs(TEXT).input_ids == [ours.eos, *ours.ids(TEXT)]
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.model_max_length) == (
        ours.eos,
        ours.eos,
        64,
    )
    if kind in ("byte", "bpe"):
        assert theirs.decode(theirs(TEXT).input_ids[1:]) == (TEXT.lower() if lowercase else TEXT)
