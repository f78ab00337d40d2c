import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts import bucket as bucket_module
from stages.artifacts import copies
from stages.artifacts.artifact import Artifact
from stages.artifacts.bucket import Bucket
from stages.artifacts.durable import write_atomically
from stages.artifacts.kinds import STAGES
from stages.artifacts.make import make
from stages.artifacts.references import MANIFEST
from stages.artifacts.stage import Execution, Inputs
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, ResourceError, UsageError
from stages.reporting import Silent
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig, restate

pytest.importorskip("obstore")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def bucket(place: Path) -> Bucket:
    return Bucket(f"file://{place}")


@pytest.fixture
def cubes(store: Store) -> Artifact:
    squares = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    return make(
        Cubes(), SquaresConfig(), {"source": squares.reference}, store, Execution()
    ).artifact


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def pushed(cubes: Artifact, bucket: Bucket) -> list[str]:
    return copies.push(cubes.reference, cubes.store, bucket, Silent())


def files_of(artifact: Artifact, place: Path) -> Path:
    """The folder in a bucket that holds the files of a copy."""
    (found,) = (path for path in (place / artifact.reference).iterdir() if path.is_dir())
    return found


def test_a_copy_comes_back_byte_for_byte_with_what_it_was_made_from(
    cubes: Artifact, bucket: Bucket, tmp_path: Path
) -> None:
    squares = cubes.input("squares")
    assert pushed(cubes, bucket) == [squares.reference, cubes.reference]
    assert pushed(cubes, bucket) == []
    other = Store(tmp_path / "other")
    assert copies.pull(cubes.reference, other, bucket, Silent()) == [
        squares.reference,
        cubes.reference,
    ]
    for artifact in (squares, cubes):
        assert content(other.folder(artifact.kind, artifact.id)) == content(artifact.path)
        other.check_files(other.open(artifact.reference), every_byte=True)
    assert copies.pull(cubes.reference, other, bucket, Silent()) == []
    assert not list(other.root.glob("*/.*-partial"))


def test_what_was_cut_short_is_no_copy_and_the_same_call_completes_it(
    cubes: Artifact, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    upload, stream, cut = Bucket.upload, Bucket.stream, "out.zarr/part/squares/c/2"

    def failing(method: Any) -> Any:
        def call(self: Bucket, name: str, *given: Any) -> Any:
            if name.endswith(cut):
                raise DataError("the line is dead")
            return method(self, name, *given)

        return call

    monkeypatch.setattr(Bucket, "upload", failing(upload))
    with pytest.raises(DataError):
        pushed(cubes, bucket)
    other = Store(tmp_path / "other")
    squares = cubes.input("squares").reference
    with pytest.raises(DataError, match=squares):
        copies.pull(squares, other, bucket, Silent())
    monkeypatch.setattr(Bucket, "upload", upload)
    pushed(cubes, bucket)

    received = list[str]()
    monkeypatch.setattr(Bucket, "stream", failing(stream))
    with pytest.raises(DataError):
        copies.pull(cubes.reference, other, bucket, Silent())
    assert not other.artifacts()

    def noted(self: Bucket, name: str) -> Any:
        received.append(name)
        return stream(self, name)

    monkeypatch.setattr(Bucket, "stream", noted)
    copies.pull(cubes.reference, other, bucket, Silent())
    assert next(name for name in received if not name.endswith("manifest.json")).endswith(cut)
    assert content(other.folder(cubes.kind, cubes.id)) == content(cubes.path)


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b + b"x", lambda b: b[:-1]]
)
def test_damaged_copies_are_refused_and_nothing_stays_of_them(
    change: Any, cubes: Artifact, bucket: Bucket, place: Path, tmp_path: Path
) -> None:
    pushed(cubes, bucket)
    file = files_of(cubes, place) / "cubes.zarr/cubes/c/1"
    file.write_bytes(change(file.read_bytes()))
    other = Store(tmp_path / "other")
    with pytest.raises(ArtifactError, match="cubes"):
        copies.pull(cubes.reference, other, bucket, Silent())
    assert not other.has(cubes.kind, cubes.id)
    (place / cubes.reference / "manifest.json").unlink()
    assert pushed(cubes, bucket) == [cubes.reference]
    copies.pull(cubes.reference, other, bucket, Silent())
    other.check_files(other.open(cubes.reference), every_byte=True)


NOTHING = {"bytes": 0, "blake2b": hashlib.blake2b().hexdigest()}


def lead_elsewhere(content: dict[str, Any]) -> None:
    content["files"] = {"../../../x": {"bytes": 1, "blake2b": "0" * 128}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lead_elsewhere, "leads out of the artifact"),
        (lambda content: content.update(id="0" * 12), "holds model/000000000000"),
        (lambda content: content["config"].update(length=11), "has the id"),
        (
            lambda content: content["files"].pop("cubes.zarr/cubes/c/1"),
            "c/1 is not what the manifest says",
        ),
        (lambda content: content["files"].update({"progress.jsonl": NOTHING}), "manifest conflict"),
        (
            lambda content: content["files"].update({"cubes.zarr/cubes/c/1/x": NOTHING}),
            "manifest conflict",
        ),
        (
            lambda content: content["inputs"]["squares"].update(kind="model", id=content["id"]),
            "form a cycle",
        ),
    ],
)
def test_manifests_of_strangers_are_refused(
    change: Any, words: str, cubes: Artifact, bucket: Bucket, place: Path, tmp_path: Path
) -> None:
    pushed(cubes, bucket)
    files = files_of(cubes, place)
    restate(place / cubes.reference, change)
    content = (place / cubes.reference / "manifest.json").read_bytes()
    files.rename(files.with_name(hashlib.blake2b(content, digest_size=16).hexdigest()))
    other = Store(tmp_path / "other")
    with pytest.raises(ArtifactError, match=words):
        copies.pull(cubes.reference, other, bucket, Silent())
    assert not other.has(cubes.kind, cubes.id)


def test_other_bytes_under_the_same_id_are_neither_replaced_nor_mixed(
    cubes: Artifact, bucket: Bucket, place: Path
) -> None:
    pushed(cubes, bucket)
    restate(place / cubes.reference, lambda content: content["metrics"].update(other=1))
    before = content(place)
    with pytest.raises(ArtifactError):
        pushed(cubes, bucket)
    with pytest.raises(ArtifactError):
        copies.pull(cubes.reference, cubes.store, bucket, Silent())
    assert content(place) == before


def test_an_object_that_is_gone_or_cut_is_sent_again(
    cubes: Artifact, bucket: Bucket, place: Path
) -> None:
    pushed(cubes, bucket)
    before = content(place)
    (files_of(cubes, place) / "cubes.zarr/cubes/c/1").unlink()
    (files_of(cubes, place) / "cubes.zarr/cubes/c/2").write_bytes(b"x")
    assert pushed(cubes, bucket) == [cubes.reference]
    assert content(place) == before


def test_two_that_push_the_same_work_done_twice_do_not_mix(
    cubes: Artifact, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    twice = Store(tmp_path / "twice")
    shutil.copytree(cubes.store.root, twice.root)
    restate(twice.root / cubes.reference, lambda content: content.update(seconds=1e6))
    create, first = Bucket.create, list[str]()

    def overtaken(self: Bucket, name: str, content: bytes) -> bool:
        if name.startswith(cubes.reference) and not first:
            first.append(name)
            copies.push(cubes.reference, twice, bucket, Silent())
        return create(self, name, content)

    monkeypatch.setattr(Bucket, "create", overtaken)
    pushed(cubes, bucket)
    other = Store(tmp_path / "other")
    copies.pull(cubes.reference, other, bucket, Silent())
    assert other.open(cubes.reference).manifest.seconds == 1e6
    other.check_files(other.open(cubes.reference), every_byte=True)


def test_an_artifact_that_is_half_made_is_not_thrown_away(
    cubes: Artifact, bucket: Bucket, tmp_path: Path
) -> None:
    pushed(cubes, bucket)
    other, squares = Store(tmp_path / "other"), cubes.input("squares")
    with pytest.raises(DataError):
        make(Squares(2, DataError("no")), SquaresConfig(), {}, other, Execution())
    before = content(other.draft_folder("tokens", squares.id))
    with pytest.raises(ArtifactError):
        copies.pull(cubes.reference, other, bucket, Silent())
    assert content(other.draft_folder("tokens", squares.id)) == before
    other.draft_folder("tokens", squares.id).rename(other.folder("tokens", squares.id))
    with pytest.raises(ArtifactError, match=squares.id):
        copies.pull(cubes.reference, other, bucket, Silent())


class FilesBucket:
    """A bucket's reading side without its library, whose threads a forked process would not have."""

    def __init__(self, place: Path) -> None:
        self.place, self.url = place, f"file://{place}"

    def read(self, name: str, most: int) -> bytes | None:
        file = self.place / name
        return file.read_bytes() if file.exists() else None

    def stream(self, name: str) -> Any:
        yield (self.place / name).read_bytes()


CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def _pull_killed_at(step: int, reference: str, root: Path, place: Path) -> None:
    left = step

    def count(event: str, arguments: Any) -> None:
        nonlocal left
        if event in CHANGES and str(root) in str(arguments[0]):
            left -= 1
            if left == 0:
                os._exit(9)

    sys.addaudithook(count)
    copies.pull(reference, Store(root), FilesBucket(place), Silent())  # type: ignore[arg-type]
    os._exit(0)


def test_a_pull_that_is_killed_at_any_step_goes_on(
    store: Store, bucket: Bucket, place: Path, tmp_path: Path
) -> None:
    # Two shards, since every change of a file is an attempt, and each of them a fork of this large
    # process.
    squares = make(Squares(), SquaresConfig(length=2, rows=1), {}, store, Execution()).artifact
    pushed(squares, bucket)
    codes = list[int | None]()
    while 0 not in codes:
        root = tmp_path / f"killed-{len(codes)}"
        given = (len(codes) + 1, squares.reference, root, place)
        process = multiprocessing.get_context("fork").Process(target=_pull_killed_at, args=given)
        process.start()
        process.join()
        codes.append(process.exitcode)
        copies.pull(squares.reference, Store(root), FilesBucket(place), Silent())  # type: ignore[arg-type]
        assert content(root / squares.reference) == content(squares.path), len(codes)
        shutil.rmtree(root)
    assert set(codes[:-1]) == {9} and len(codes) > 30


def test_a_pull_that_was_killed_before_its_work_file_goes_on(
    cubes: Artifact, bucket: Bucket, tmp_path: Path
) -> None:
    pushed(cubes, bucket)
    other = Store(tmp_path / "other")
    other.draft_folder(cubes.kind, cubes.id).mkdir(parents=True)
    copies.pull(cubes.reference, other, bucket, Silent())
    assert content(other.folder(cubes.kind, cubes.id)) == content(cubes.path)


def test_a_pull_that_was_killed_while_it_published_receives_nothing_again(
    cubes: Artifact, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    squares = cubes.input("squares")
    pushed(cubes, bucket)
    other = Store(tmp_path / "other")
    with monkeypatch.context() as killed:
        killed.setattr("stages.artifacts.draft.fsync_folders", lambda *_: pytest.exit("killed"))
        with pytest.raises(pytest.exit.Exception):
            copies.pull(squares.reference, other, bucket, Silent())
    left = other.draft_folder(squares.kind, squares.id)
    assert (left / "manifest.json").exists() and not (left / "work.json").exists()

    stream, received = Bucket.stream, list[str]()
    monkeypatch.setattr(
        Bucket, "stream", lambda self, name: received.append(name) or stream(self, name)
    )
    copies.pull(squares.reference, other, bucket, Silent())
    assert received == [f"{squares.reference}/manifest.json"]
    assert content(other.folder(squares.kind, squares.id)) == content(squares.path)


def test_a_copy_names_no_folder_of_the_machine(
    cubes: Artifact, bucket: Bucket, place: Path, tmp_path: Path
) -> None:
    command = ["tokenize", "/home/anna/books/a.txt", "--out=~/b.txt", "corpus/c.txt"]
    manifest = cubes.manifest.model_copy(update={"command": command}).sealed()
    write_atomically(cubes.path / MANIFEST, manifest.dumps())
    pushed(cubes.store.get(cubes.reference), bucket)

    texts = [file.read_bytes() for file in place.rglob("*") if file.is_file()]
    assert not any(b"anna" in text or b"~" in text for text in texts)

    other = Store(tmp_path / "other")
    copies.pull(cubes.reference, other, bucket, Silent())
    pulled = other.get(cubes.reference)
    assert pulled.manifest.command == ["tokenize", "a.txt", "--out=b.txt", "corpus/c.txt"]
    other.check_files(pulled)


def test_the_folder_of_another_store_is_pushed_from_there(
    cubes: Artifact, bucket: Bucket, tmp_path: Path
) -> None:
    sent = copies.push(str(cubes.path), Store(tmp_path / "elsewhere"), bucket, Silent())
    assert sent == [cubes.input("squares").reference, cubes.reference]


class Both(Cubes):
    """Cubes that read two artifacts, of which one was made from the other."""

    name, kind = "both", "datastore"

    def inputs(self, config: SquaresConfig, references: Any, store: Store) -> Inputs:
        return Inputs({role: store.get(reference) for role, reference in references.items()})


STAGES.targets["both"] = f"{__name__}:Both"


def test_what_others_were_made_from_comes_first(
    store: Store, bucket: Bucket, tmp_path: Path
) -> None:
    squares = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    first = make(
        Cubes(), SquaresConfig(), {"source": squares.reference}, store, Execution()
    ).artifact

    read = {"encoder": first.reference, "squares": squares.reference}
    last = make(Both(), SquaresConfig(), read, store, Execution()).artifact
    copies.push(last.reference, store, bucket, Silent())
    received = copies.pull(last.reference, Store(tmp_path / "other"), bucket, Silent())
    assert received == [squares.reference, first.reference, last.reference]


def test_a_full_bucket_holds_no_cut_copy_and_the_same_call_goes_on(
    cubes: Artifact, bucket: Bucket, tmp_path: Path
) -> None:
    limit, squares = resource.getrlimit(resource.RLIMIT_FSIZE), cubes.input("squares")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limit[1]))
    try:
        with pytest.raises(ResourceError):
            pushed(cubes, bucket)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with pytest.raises(DataError):
        copies.pull(squares.reference, Store(tmp_path / "other"), bucket, Silent())
    assert pushed(cubes, bucket) == [squares.reference, cubes.reference]
    copies.pull(cubes.reference, Store(tmp_path / "other"), bucket, Silent())


def test_no_object_is_too_large_for_its_time_or_its_parts() -> None:
    settings = bucket_module._settings("s3://papers/memlm")
    assert settings["client_options"]["timeout"].total_seconds() > 3600
    assert settings["retry_config"]["retry_timeout"].total_seconds() < 60


def test_what_cannot_be_meant_is_refused(store: Store, bucket: Bucket, place: Path) -> None:
    with pytest.raises(UsageError):
        copies.pull("model/mine", store, bucket, Silent())
    with pytest.raises(DataError, match="model/0123456789ab"):
        copies.pull("model/0123456789ab", store, bucket, Silent())
    (place / "model/0123456789ab").mkdir(parents=True)
    (place / "model/0123456789ab/manifest.json").write_text(json.dumps([1]))
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        copies.pull("model/0123456789ab", store, bucket, Silent())
    for url in ("/tmp/x", "nope://x", "s3://"):
        with pytest.raises(UsageError):
            Bucket(url)
