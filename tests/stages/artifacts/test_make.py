"""A stage's artifact appears whole or not at all, survives interruption, and is made once."""

import errno
import json
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pytest
import zarr
from pydantic import Field

from stages.artifacts.checksums import file_entry
from stages.artifacts.draft import Draft
from stages.artifacts.durable import disk_failure
from stages.artifacts.lock import hold_lock, is_held
from stages.artifacts.make import PhaseProgress, make
from stages.artifacts.manifest import UncheckedArtifact
from stages.artifacts.output import ShardOutput, read_record
from stages.artifacts.schema import Figures, Schema
from stages.artifacts.stage import Execution, Shard
from stages.artifacts.store import Store
from stages.errors import ArtifactError, BusyError, DataError, ResourceError
from stages.interrupts import Terminated
from stages.reporting import Silent
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig, restate
from tests.stages.notes import Notes


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_publishes_exactly_what_the_manifest_lists(store: Store) -> None:
    artifact = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    assert set(tree(artifact.path)) == {*artifact.manifest.files, "manifest.json"}
    assert artifact.metrics == {"sum": sum(i * i for i in range(10))}
    values = zarr.open_group(artifact.path / "out.zarr", mode="r")["part/squares"][:]
    np.testing.assert_array_equal(values, np.arange(10) ** 2)
    assert not list(store.root.glob("tokens/.*-partial"))


@dataclass(frozen=True)
class Weighed(Shard):
    """A shard of some size."""

    tokens: int = 0

    @property
    def amount(self) -> int:
        return self.tokens

    @property
    def unit(self) -> str:
        return "tokens"


def test_phases_are_counted_one_by_one_by_the_size_of_their_shards() -> None:
    """Shards done before count at once, and those of other phases never."""
    shards = [
        Shard("s", phase="sample"),
        Weighed("a", 900, phase="score"),
        Weighed("b", 100, phase="score"),
        Weighed("c", 50, phase="score"),
    ]
    told = list[tuple[int, int, str]]()
    reporter = SimpleNamespace(progress=lambda *progress: told.append(progress))
    progress = PhaseProgress(shards, reporter)
    progress.begin(shards[:1])
    progress.add("s")
    progress.begin(shards[2:])
    progress.add("c")
    progress.add("b")
    assert told[:2] == [(0, 1, "shards"), (1, 1, "shards")]
    assert told[2:] == [(900, 1050, "tokens"), (950, 1050, "tokens"), (1050, 1050, "tokens")]


class Roots(Figures):
    sum: Annotated[int, Field(lt=9)]


def test_metrics_that_the_schema_refuses_are_a_bug_and_are_not_published(store: Store) -> None:
    stage = Squares()
    stage.schema = Schema(Roots)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"squares returned .*refuses: sum: .* less than 9"):
        make(stage, SquaresConfig(), {}, store, Execution())
    assert not list(store.root.glob("tokens/*/manifest.json"))


def test_same_work_is_not_done_twice(store: Store) -> None:
    first = make(Squares(), SquaresConfig(), {}, store, Execution())
    again = Squares(fail_at=0, error=AssertionError("must not run"))
    second = make(again, SquaresConfig(verbose=True), {}, store, Execution())
    assert (first.status, second.status) == ("made", "cached")
    assert first.artifact.id == second.artifact.id


def test_a_default_that_has_changed_is_told_and_nothing_else_is_read(store: Store) -> None:
    """Ids leave out defaults, so work of another default may have the id of today's."""
    artifact = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    restate(artifact.path, lambda content: content["config"].update(rows=4))
    with pytest.raises(UncheckedArtifact, match="other defaults") as refused:
        make(Squares(), SquaresConfig(), {}, store, Execution())
    assert f"rm --force {artifact.reference} and make it again" in str(refused.value)
    assert "damaged" not in str(refused.value)


def test_a_default_that_has_changed_beside_a_setting_that_is_new_is_no_damage(store: Store) -> None:
    artifact = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact

    def as_before(content: dict[str, Any]) -> None:
        del content["config"]["length"]
        content["config"]["rows"] = 4

    restate(artifact.path, as_before)
    with pytest.raises(UncheckedArtifact, match="other defaults"):
        store.get(artifact.reference)
    for every_byte in (False, True):
        with pytest.raises(UncheckedArtifact):
            store.check_files(store.open(artifact.reference), every_byte=every_byte)


def test_id_covers_settings_and_file_digests_but_no_paths(store: Store) -> None:
    def id_of(config: SquaresConfig, *files: tuple[str, str]) -> str:
        return make(Squares(), config, {"files": files}, store, Execution()).artifact.id

    base = id_of(SquaresConfig(), ("a", "1"), ("b", "2"))
    assert base == id_of(SquaresConfig(), ("elsewhere/a", "1"), ("b", "2"))
    assert base != id_of(SquaresConfig(), ("b", "2"), ("a", "1"))
    assert base != id_of(SquaresConfig(rows=4), ("a", "1"), ("b", "2"))


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), Terminated()])
@pytest.mark.parametrize("fail_at", [0, 2, 3])
def test_interrupted_work_goes_on_and_gives_the_same_bytes(
    store: Store, tmp_path: Path, error: BaseException, fail_at: int
) -> None:
    with pytest.raises(type(error)):
        make(Squares(fail_at, error), SquaresConfig(), {}, store, Execution())
    assert not store.artifacts()
    rest, reporter = Squares(), Notes()
    resumed = make(rest, SquaresConfig(), {}, store, Execution(reporter=reporter))
    assert rest.computed == [f"{i:03}" for i in range(fail_at, 4)]
    assert (f"resumed: {fail_at} of 4 shards" in reporter.messages) == (fail_at > 0)
    assert resumed.status == ("resumed" if fail_at else "made")
    whole = make(Squares(), SquaresConfig(), {}, Store(tmp_path / "other"), Execution()).artifact
    assert whole.manifest.files == resumed.artifact.manifest.files


def test_a_draft_without_work_in_it_goes(store: Store) -> None:
    with pytest.raises(RuntimeError):
        make(Squares(0, RuntimeError()), SquaresConfig(), {}, store, Execution())
    assert not list(store.root.glob("tokens/.*-partial"))


class Refusing(Squares):
    """Its plan does some work, and then finds fault with its input."""

    def __init__(self, cause: BaseException | None = None) -> None:
        super().__init__()
        self.cause = cause

    def plan(self, job):  # type: ignore[no-untyped-def]
        job.draft.add("scratch/read.txt").write_text("read\n")
        job.draft.commit("read")
        raise DataError("the input is a single line") from self.cause


def test_a_draft_whose_input_is_refused_goes(store: Store) -> None:
    with pytest.raises(DataError, match="a single line"):
        make(Refusing(), SquaresConfig(), {}, store, Execution())
    assert not list(store.root.glob("tokens/.*-partial"))


def test_a_draft_stays_where_a_file_could_not_be_read_or_an_earlier_attempt_began_it(
    store: Store,
) -> None:
    with pytest.raises(DataError):
        make(Refusing(OSError("stale file handle")), SquaresConfig(), {}, store, Execution())
    assert len(list(store.root.glob("tokens/.*-partial"))) == 1
    with pytest.raises(DataError):
        make(Refusing(), SquaresConfig(), {}, store, Execution())
    assert len(list(store.root.glob("tokens/.*-partial"))) == 1


def test_a_draft_stays_where_a_shard_finds_bad_data(store: Store) -> None:
    with pytest.raises(DataError):
        make(
            Squares(2, DataError("not seen on this machine")),
            SquaresConfig(),
            {},
            store,
            Execution(),
        )
    assert make(Squares(), SquaresConfig(), {}, store, Execution()).status == "resumed"


def _killed_worker(root: Path) -> None:
    class Slow(Squares):
        def run_shard(self, job, work, shard):  # type: ignore[no-untyped-def]
            time.sleep(0.05)
            return super().run_shard(job, work, shard)

    make(Slow(), SquaresConfig(length=60), {}, Store(root), Execution())


def test_sigkill_loses_only_the_shard_under_way(store: Store, tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_killed_worker, args=(store.root,))
    process.start()
    log = None
    while log is None or log.read_text().count("\n") < 4:
        time.sleep(0.01)
        log = next(store.root.glob("tokens/.*-partial/progress.jsonl"), None)
    process.kill()
    process.join()
    rest = Squares()
    artifact = make(rest, SquaresConfig(length=60), {}, store, Execution()).artifact
    assert 0 < len(rest.computed) <= 16
    whole = make(
        Squares(), SquaresConfig(length=60), {}, Store(tmp_path / "other"), Execution()
    ).artifact
    assert whole.manifest.files == artifact.manifest.files


def _interrupt(store: Store, fail_at: int = 3) -> Path:
    with pytest.raises(RuntimeError):
        make(Squares(fail_at, RuntimeError()), SquaresConfig(), {}, store, Execution())
    (draft,) = store.root.glob("tokens/.*-partial")
    return draft


def test_a_committed_shard_that_was_damaged_is_made_again(store: Store) -> None:
    draft = _interrupt(store)
    shard = draft / "out.zarr/part/squares/c/1"
    shard.write_bytes(bytes(len(shard.read_bytes())))
    rest = Squares()
    artifact = make(rest, SquaresConfig(), {}, store, Execution()).artifact
    assert rest.computed == ["001", "003"]
    np.testing.assert_array_equal(artifact.zarr("out.zarr")["part/squares"][:], np.arange(10) ** 2)


def test_a_torn_last_line_of_the_log_is_forgotten(store: Store) -> None:
    draft = _interrupt(store)
    with (draft / "progress.jsonl").open("a") as log:
        log.write('{"key": "003", "files": {"out.z')
    rest = Squares()
    make(rest, SquaresConfig(), {}, store, Execution())
    assert rest.computed == ["003"]


def _changed_digit(line: str) -> str:
    return line.replace('"sum": ', '"sum": 1')


@pytest.mark.parametrize(
    "damage",
    [
        _changed_digit,
        lambda line: line.replace('"key"', '"kex"'),
        lambda line: line[: len(line) // 2],
        lambda line: "[" * 100_000,
        lambda line: "17",
        lambda line: "null",
        lambda line: "\udcff" + line[1:],
        lambda line: json.dumps(
            {name: value for name, value in json.loads(line).items() if name != "check"}
        ),
    ],
)
def test_the_log_is_cut_where_it_is_not_as_it_was_written(
    store: Store, damage: Callable[[str], str]
) -> None:
    log = _interrupt(store) / "progress.jsonl"
    first, second, third = log.read_text().splitlines()
    log.write_bytes("\n".join([first, damage(second), third, ""]).encode(errors="surrogateescape"))
    rest, reporter = Squares(), Notes()
    artifact = make(rest, SquaresConfig(), {}, store, Execution(reporter=reporter)).artifact
    assert rest.computed == ["001", "002", "003"]
    assert artifact.metrics == {"sum": 285}
    assert any("last 2 lines" in line for line in reporter.messages)


def test_a_worker_believes_no_damaged_record(store: Store) -> None:
    log = _interrupt(store) / "progress.jsonl"
    assert read_record(log, "000") == {"sum": 5}
    log.write_text("".join(map(_changed_digit, log.read_text().splitlines(keepends=True))))
    for key in ("000", "unknown"):
        with pytest.raises(ArtifactError):
            read_record(log, key)


def test_strangers_in_the_folder_are_not_published(store: Store) -> None:
    draft = _interrupt(store)
    (draft / "out.zarr/part/squares/c/99").write_text("left over")
    (draft / "core").write_text("left over")
    (draft / "empty").mkdir()
    artifact = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    assert set(tree(artifact.path)) == {*artifact.manifest.files, "manifest.json"}
    assert not (artifact.path / "empty").exists()


def test_a_publication_that_was_interrupted_is_finished(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Path, "rename", lambda self, target: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        make(Squares(), SquaresConfig(), {}, store, Execution())
    monkeypatch.undo()
    outcome = make(Squares(0, AssertionError()), SquaresConfig(), {}, store, Execution())
    assert outcome.status == "resumed"
    assert set(tree(outcome.artifact.path)) == {*outcome.artifact.manifest.files, "manifest.json"}


def test_a_draft_that_lacks_more_than_its_name_is_not_published(store: Store) -> None:
    """As when its removal was interrupted."""
    made = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    draft = store.draft_folder(made.kind, made.id)
    made.path.rename(draft)
    (draft / "out.zarr/part/squares/c/1").unlink()
    again = make(Squares(), SquaresConfig(), {}, store, Execution())
    assert (again.status, again.artifact.digest) == ("made", made.digest)


def test_a_draft_begun_from_other_bytes_is_begun_anew(store: Store) -> None:
    source = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    cubes = make(
        Cubes(), SquaresConfig(), {"source": source.reference}, store, Execution()
    ).artifact
    work = {"id": cubes.id, "inputs": {"squares": source.record.model_dump()}}
    folder = store.draft_folder("model", "0" * 12)
    draft = Draft(folder, work)
    draft.commit("000")
    draft.close()
    assert Draft(folder, work).resumed
    assert not Draft(folder, {**work, "inputs": {}}).resumed


def test_a_lost_manifest_is_told_before_the_work(store: Store) -> None:
    artifact = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    (artifact.path / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="--force tokens/"):
        make(Squares(0, AssertionError()), SquaresConfig(), {}, store, Execution())


def test_other_bytes_behind_the_same_id_are_refused(store: Store) -> None:
    source = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    cubes = make(
        Cubes(), SquaresConfig(), {"source": source.reference}, store, Execution()
    ).artifact
    note = source.path / "note.txt"
    note.write_text("DONE\n")
    restate(source.path, lambda manifest: manifest["files"].update({"note.txt": file_entry(note)}))
    with pytest.raises(ArtifactError, match=cubes.reference):
        store.get(cubes.reference).input("squares")
    with pytest.raises(ArtifactError):
        make(Cubes(), SquaresConfig(), {"source": source.reference}, store, Execution())


def test_equal_works_have_equal_digests_whoever_made_them(store: Store, tmp_path: Path) -> None:
    first = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    other = make(
        Squares(), SquaresConfig(verbose=True), {}, Store(tmp_path / "other"), Execution()
    ).artifact
    assert first.digest == other.digest == first.manifest.digest
    restate(
        other.path,
        lambda m: m["metrics"].update({"rows": [{"queries_per_second": {"1": 3.5}, "seconds": 2}]}),
    )
    restate(
        first.path,
        lambda m: m["metrics"].update({"rows": [{"queries_per_second": {"1": 4.5}, "seconds": 1}]}),
    )
    assert (
        store.get(first.reference).digest
        == Store(tmp_path / "other").get(other.reference).digest
        != first.digest
    )


def test_a_damaged_manifest_of_a_draft_is_written_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Path, "rename", lambda self, target: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        make(Squares(), SquaresConfig(), {}, store, Execution())
    monkeypatch.undo()
    (manifest,) = store.root.glob("tokens/.*-partial/manifest.json")
    manifest.write_text(manifest.read_text().replace('"sum": 285', '"sum": 286'))
    assert make(Squares(), SquaresConfig(), {}, store, Execution()).artifact.metrics == {"sum": 285}


class Removing(Cubes):
    """Cubes whose input is removed before the first shard is read: those read before it may be
    kept.
    """

    def __init__(self, loud: bool) -> None:
        self.loud = loud

    def run_shard(self, job, work, shard):  # type: ignore[no-untyped-def]
        squares = job.inputs["squares"]
        if shard.key == "000":
            squares.store.remove(squares.reference)
            if not self.loud:
                output = ShardOutput(job.folder)
                output.write(work, 0, np.zeros(3, np.int64))  # as Zarr reads shards that are gone
                return output
        return super().run_shard(job, work, shard)


@pytest.mark.parametrize("loud", [True, False])
def test_an_input_that_is_removed_while_it_is_read_is_told_and_nothing_of_it_is_kept(
    store: Store, tmp_path: Path, loud: bool
) -> None:
    source = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    with pytest.raises(ArtifactError, match=source.reference):
        make(Removing(loud), SquaresConfig(), {"source": source.reference}, store, Execution())
    make(Squares(), SquaresConfig(), {}, store, Execution())
    again = make(Cubes(), SquaresConfig(), {"source": source.reference}, store, Execution())
    assert again.status == "made"
    np.testing.assert_array_equal(again.artifact.zarr("cubes.zarr")["cubes"][:], np.arange(10) ** 3)


def test_two_makers_one_works_the_other_waits(store: Store) -> None:
    release, entered = threading.Event(), threading.Event()

    class Slow(Squares):
        def run_shard(self, job, work, shard):  # type: ignore[no-untyped-def]
            entered.set()
            release.wait(10)
            return super().run_shard(job, work, shard)

    slow, second, reporter, outcomes = Slow(), Squares(), Notes(), []

    def work(stage: Squares, execution: Execution) -> None:
        outcomes.append(make(stage, SquaresConfig(), {}, store, execution).status)

    threads = [threading.Thread(target=work, args=(slow, Execution()))]
    threads[0].start()
    assert entered.wait(10)
    with pytest.raises(BusyError):
        make(Squares(), SquaresConfig(), {}, store, Execution(wait=False))
    threads.append(threading.Thread(target=work, args=(second, Execution(reporter=reporter))))
    threads[1].start()
    while not reporter.messages:
        time.sleep(0.01)
    release.set()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["cached", "made"]
    assert second.computed == []
    assert "waiting for process" in reporter.messages[0]


@pytest.mark.parametrize(
    "full",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("Not enough free space to write 27727872 bytes after offset 870976"),
        OSError("27727872 requested and 870976 written"),
        Exception("No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_keeps_what_is_done(store: Store, full: Exception) -> None:
    with pytest.raises(ResourceError):
        make(Squares(1, full), SquaresConfig(), {}, store, Execution())
    rest = Squares()
    make(rest, SquaresConfig(), {}, store, Execution())
    assert rest.computed == ["001", "002", "003"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.EDQUOT, "Disk quota exceeded"),
            "Your quota on the disk of .* is used up.*make room",
        ),
        (OSError(errno.EFBIG, "File too large"), "larger than may be .*What is done is kept"),
        (
            OSError(errno.EIO, "Input/output error", "keys/c/7"),
            "The disk or its cable fails at keys/c/7",
        ),
    ],
)
def test_other_failures_of_the_disk_are_told_apart(
    store: Store, error: OSError, message: str
) -> None:
    with pytest.raises(ResourceError, match=message):
        make(Squares(1, error), SquaresConfig(), {}, store, Execution())


def test_few_inodes_are_told_beside_much_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed has given some back by then."""
    room = SimpleNamespace(f_files=80, f_favail=3, f_bavail=10**6, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    message = disk_failure(OSError(errno.ENOSPC, "full"), Path("store"))
    assert message is not None and "4.1 GB and 3 files are free" in message


def test_a_disk_without_inodes_is_not_said_to_lack_bytes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(
        f_files=9, f_favail=0, f_blocks=10**9, f_bfree=10**9, f_bavail=10**9, f_frsize=4096
    )
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    with pytest.raises(ResourceError, match="inodes"):
        make(
            Squares(1, OSError(errno.ENOSPC, "No space left on device")),
            SquaresConfig(),
            {},
            store,
            Execution(),
        )


def test_a_disk_that_is_full_from_the_first_byte_is_told_with_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stages.artifacts.make.Draft", refuse)
    with pytest.raises(ResourceError):
        make(Squares(), SquaresConfig(), {}, store, Execution())


def test_too_little_room_is_said_before_the_work(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    stage = Squares()
    with pytest.raises(ResourceError):
        make(stage, SquaresConfig(), {}, store, Execution())
    assert stage.computed == []


def test_a_lock_that_cannot_be_tried_counts_as_held(tmp_path: Path) -> None:
    (tmp_path / ".x.lock").mkdir()
    assert is_held(tmp_path / ".x.lock")


def test_lock_is_free_after_its_holder(tmp_path: Path) -> None:
    lock_file = tmp_path / "tokens" / ".x.lock"
    for _ in range(2):
        with hold_lock(lock_file, "tokens/x", wait=False, reporter=Silent()):
            assert is_held(lock_file)
        assert not is_held(lock_file)
