"""Whole or not at all, and never in the place of what somebody else wrote."""

import pytest

from stages.errors import UsageError
from stages.export.folder import CARD, MARK, check_export_folder, new_folder


def written(folder, text=MARK):
    folder.mkdir()
    (folder / CARD).write_text(text)
    (folder / "config.json").write_text("{}")
    return folder


def test_an_earlier_export_and_an_empty_folder_may_be_replaced(tmp_path):
    check_export_folder(tmp_path / "none")
    check_export_folder(written(tmp_path / "earlier"))
    (tmp_path / "empty").mkdir()
    for name in ("none", "earlier", "empty"):
        with new_folder(tmp_path / name) as draft:
            (draft / "model.safetensors").write_bytes(b"new")
        assert [path.name for path in (tmp_path / name).iterdir()] == ["model.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier", "empty", "none"]


def test_what_somebody_else_wrote_is_left_alone(tmp_path):
    with pytest.raises(UsageError, match=r"is there and was not written by memlm export; name another folder"):
        check_export_folder(written(tmp_path / "model", "a model of mine"))
    earlier = written(tmp_path / "earlier")
    (earlier / ".git").mkdir()
    with pytest.raises(UsageError, match=r"holds \.git, which was not written by memlm export"):
        check_export_folder(earlier)
    noted = written(tmp_path / "noted")
    (noted / "notes.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds notes\.json, which was not written by memlm export"):
        check_export_folder(noted)
    (tmp_path / "link").symlink_to(written(tmp_path / "target"))
    with pytest.raises(UsageError, match="is no folder of its own"):
        check_export_folder(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is no folder of its own"):
        check_export_folder(tmp_path / "file")
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
