"""Whole or not at all, and never in the place of what somebody else wrote."""

import pytest

from stages.errors import UsageError
from stages.export.folder import CARD, RECORD, check_export_folder, new_folder

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
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [RECORD, "model.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier", "empty", "none"]


@pytest.mark.parametrize("name", [CARD, "config.json", "model.safetensors", ".git"])
def test_what_somebody_saved_into_an_export_is_left_alone(tmp_path, name):
    folder = written(tmp_path / "model")
    (folder / name).write_text("mine")
    with pytest.raises(UsageError, match=rf"holds {name}, {NOT_WRITTEN}"):
        check_export_folder(folder)


def test_what_is_saved_there_while_an_export_is_written_is_left_alone(tmp_path):
    folder = written(tmp_path / "model")
    with pytest.raises(UsageError, match=rf"holds config\.json, {NOT_WRITTEN}"), new_folder(folder) as draft:
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
