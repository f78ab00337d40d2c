"""A draft grows by units of work, and output belongs to nobody until it is committed."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts import draft as drafts
from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.checksums import file_entry
from stages.artifacts.draft import Draft
from stages.artifacts.output import ProgressLog, ShardOutput, Written
from stages.errors import ArtifactError


def opened(folder: Path) -> Draft:
    return Draft(folder, {"id": "work"})


def write(draft: Draft, number: int, *, kept: str | None = None) -> None:
    """A unit with a file that only the next unit reads, and perhaps one to keep."""
    output = ShardOutput(draft.path)
    if kept is not None:
        output.add("kept").write_text(kept)
    output.add(f"scratch/{number}").write_text(f"file {number}")
    if number:
        output.discard(f"scratch/{number - 1}")
    draft.append(output.written(str(number)))


def files(draft: Draft) -> list[str]:
    return sorted(path.name for path in draft.scratch.iterdir())


def test_a_discarded_file_is_gone_once_the_unit_is_durable_and_its_own_unit_stays_done(tmp_path):
    draft = opened(tmp_path / "draft")
    for number in range(5):
        write(draft, number)
        assert files(draft) == [str(number)]
    draft.expect(100)
    assert draft.missing_bytes == 100 - len("file 4")
    draft.close()
    for _ in range(2):
        again = opened(tmp_path / "draft")
        assert [again.done(str(number)) for number in range(6)] == [True] * 5 + [False]
        assert again.finish_files() == {}
        again.close()


@pytest.mark.parametrize(("logged", "left"), [(False, ["0", "1"]), (True, ["1"])])
def test_a_kill_before_the_log_leaves_the_file_and_one_after_it_is_made_good(
    tmp_path, monkeypatch, logged, left
):
    draft = opened(tmp_path / "draft")
    write(draft, 0)
    append = ProgressLog.append

    def killed(log, unit):
        if logged:
            append(log, unit)
        raise KeyboardInterrupt

    monkeypatch.setattr(drafts.ProgressLog, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        write(draft, 1)
    draft.close()
    assert files(draft) == ["0", "1"]
    monkeypatch.undo()
    again = opened(tmp_path / "draft")
    assert files(again) == left
    assert (again.done("0"), again.done("1")) == (True, logged)
    again.close()


@pytest.mark.parametrize("field", ["discarded", "files"])
@pytest.mark.parametrize("name", ["../stranger", "{tmp_path}/stranger", "scratch/../../stranger"])
def test_no_name_in_the_log_leaves_the_draft(tmp_path: Path, field: str, name: str) -> None:
    stranger = tmp_path / "stranger"
    stranger.write_text("all of it")
    draft = opened(tmp_path / "draft")
    names = [name.format(tmp_path=tmp_path)]
    crafted = (
        Written("0", {}, discarded=names)
        if field == "discarded"
        else Written("0", {names[0]: file_entry(stranger)})
    )
    draft._log.append(crafted)
    draft.close()
    assert not opened(tmp_path / "draft").done("0")
    assert stranger.exists()


@pytest.mark.parametrize("link", ["draft", "draft/scratch", "draft/out.zarr"])
def test_a_draft_that_is_or_holds_a_link_is_refused(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").write_text("all of it")
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(elsewhere)
    with pytest.raises(ArtifactError):
        opened(tmp_path / "draft")
    assert [path.name for path in elsewhere.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("content", [b"[" * 100_000, b"null", b"\xff", b""])
def test_a_draft_of_odd_work_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    draft = opened(tmp_path / "draft")
    write(draft, 0)
    draft.close()
    (tmp_path / "draft" / "work.json").write_bytes(content)
    assert not opened(tmp_path / "draft").resumed


def test_a_unit_that_is_done_again_has_its_file_again(tmp_path):
    draft = opened(tmp_path / "draft")
    write(draft, 0, kept="right")
    write(draft, 1)
    draft.close()
    (tmp_path / "draft/kept").write_text("wrong")
    again = opened(tmp_path / "draft")
    assert (again.done("0"), again.done("1")) == (False, True)
    write(again, 0)
    again.close()
    for _ in range(2):
        later = opened(tmp_path / "draft")
        assert (later.done("0"), later.done("1"), files(later)) == (True, True, ["0", "1"])
        later.close()
    (tmp_path / "draft/scratch/0").write_text("wrong")
    assert not opened(tmp_path / "draft").done("0")


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    return Draft(tmp_path / "draft", {"id": "work"})


def test_a_block_is_written_when_it_is_asked_what_was_written(draft: Draft) -> None:
    layout = ArrayLayout("a.zarr/x", (5,), "int32", 2)
    draft.create(layout)
    metadata = sorted(draft.path.rglob("zarr.json"))
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in metadata]
    output = ShardOutput(draft.path, {"rows": 2})
    output.write(layout, 1, np.array([7, 8], "int32"))
    output.add("scratch/note").write_text("here")
    output.discard("scratch/older")
    assert not (draft.path / layout.shard_file(1)).exists()

    written = output.written("one")
    assert written.key == "one"
    assert written.record == {"rows": 2}
    assert written.discarded == ["scratch/older"]
    assert set(written.files) == {"scratch/note", "a.zarr/x/c/1"}
    assert written.files["scratch/note"] == {
        "bytes": 4,
        "blake2b": hashlib.blake2b(b"here").hexdigest(),
    }
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in metadata] == before


def test_nothing_is_done_before_it_is_committed(draft: Draft) -> None:
    (draft.path / "scratch/older").write_text("")
    output = ShardOutput(draft.path, {"n": 1})
    output.add("kept").write_text("here")
    output.discard("scratch/older")
    written = output.written("one")
    assert not draft.done("one")
    assert (draft.path / "scratch/older").exists()
    draft.append(written)
    assert draft.done("one")
    assert draft.record("one") == {"n": 1}
    assert not (draft.path / "scratch/older").exists()
    assert list(draft.finish_files()) == ["kept"]


def test_whoever_may_read_the_folder_may_read_its_files(draft: Draft) -> None:
    file = draft.add("weights")
    file.write_text("numbers")
    file.chmod(0o600)
    draft.path.chmod(0o750)
    draft.commit("unit")
    assert list(draft.finish_files()) == ["weights"]
    assert file.stat().st_mode & 0o777 == 0o640
