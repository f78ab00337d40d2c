"""References, names, damage, lineage and garbage."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import file_entry, write_stamps
from stages.artifacts.garbage import find_garbage, remove_garbage
from stages.artifacts.make import make
from stages.artifacts.manifest import UncheckedArtifact
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig, restate


@pytest.fixture
def cubes(store: Store, squares: Artifact) -> Artifact:
    return make(
        Cubes(), SquaresConfig(), {"source": squares.reference}, store, Execution()
    ).artifact


def test_references_by_id_name_and_path(store: Store, squares: Artifact) -> None:
    store.name(squares, "wiki-2")
    for reference in (squares.reference, "tokens/wiki-2", str(squares.path)):
        assert store.get(reference).id == squares.id


def test_an_artifact_found_by_path_brings_its_own_store(tmp_path: Path, cubes: Artifact) -> None:
    found = Store(tmp_path / "elsewhere").get(str(cubes.path))
    assert found.input("squares").kind == "tokens"
    assert found.find("squares").reference == cubes.input("squares").reference
    with pytest.raises(ArtifactError, match="memlm artifacts rm"):
        found.find("nobody")


def test_an_input_is_checked_once_for_each_artifact_that_is_opened(
    store: Store, cubes: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, check = [], Store.check_files

    def counted(self: Store, artifact: Artifact, **how: Any) -> None:
        checked.append(artifact.reference)
        check(self, artifact, **how)

    monkeypatch.setattr(Store, "check_files", counted)
    found = store.get(cubes.reference)
    squares = found.input("squares")
    assert found.input("squares") is squares
    assert checked == [cubes.reference, squares.reference]
    assert store.get(cubes.reference).input("squares") is not squares
    assert checked == [cubes.reference, squares.reference] * 2


@pytest.mark.parametrize("name", ["0123456789ab", "a/b", ".hidden", ""])
def test_names_that_will_not_do(store: Store, squares: Artifact, name: str) -> None:
    with pytest.raises(UsageError):
        store.name(squares, name)


def test_a_name_moves(store: Store, squares: Artifact) -> None:
    other = make(Squares(), SquaresConfig(length=4), {}, store, Execution()).artifact
    store.name(squares, "x")
    store.name(other, "x")
    assert store.get("tokens/x").id == other.id


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tokens/000000000000", "memlm tokenize"),
        ("tokens/wikki", "did you mean 'tokens/wiki'"),
        ("token/wiki", "did you mean 'tokens'"),
        ("wiki", r"did you mean tokens/wiki\?"),
        ("./nowhere", "neither kind/id"),
        ("", "neither kind/id"),
        ("x" * 5000, "neither kind/id"),
        ("model/" + "x" * 5000, "neither kind/id"),
    ],
)
def test_what_is_not_there_is_explained(
    store: Store, squares: Artifact, reference: str, message: str
) -> None:
    store.name(squares, "wiki")
    with pytest.raises(ArtifactError, match=message):
        store.get(reference)


def test_a_mistyped_id_is_put_right(store: Store, squares: Artifact) -> None:
    typed = squares.id[:-1] + ("0" if squares.id[-1] != "0" else "1")
    with pytest.raises(ArtifactError, match=squares.reference):
        store.get(f"{squares.kind}/{typed}")


def test_an_unfinished_artifact_says_so(store: Store) -> None:
    with pytest.raises(RuntimeError):
        make(Squares(2, RuntimeError()), SquaresConfig(), {}, store, Execution())
    (draft,) = store.root.glob("tokens/.*-partial")
    id = draft.name[1:].removesuffix("-partial")
    with pytest.raises(ArtifactError):
        store.get(f"tokens/{id}")


def test_wrong_kind_names_what_is_needed(store: Store, squares: Artifact) -> None:
    with pytest.raises(ArtifactError, match="memlm train"):
        store.get(squares.reference, "model")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_every_flipped_bit_is_found(store: Store, squares: Artifact) -> None:
    for relative in squares.manifest.files:
        flip(squares.path / relative)
        with pytest.raises(ArtifactError, match=relative):
            store.get(squares.reference)
        flip(squares.path / relative)
        store.get(squares.reference)


def test_stamps_save_hashing_but_verification_trusts_none(store: Store, squares: Artifact) -> None:
    path = squares.path / "note.txt"
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ArtifactError):
        store.check_files(squares, every_byte=True)
    with pytest.raises(ArtifactError):
        store.get(squares.reference)


def rot(artifact: Artifact, file: str) -> None:
    """Let a bit of a file flip beneath the file system: neither size nor times nor inode tell."""
    flip(artifact.path / file)
    write_stamps(
        artifact.store.root / ".stamps" / f"{artifact.reference}.json",
        artifact.path,
        artifact.manifest.files,
    )


def test_bits_that_rot_are_found_by_whoever_hashes_every_byte(
    store: Store, squares: Artifact
) -> None:
    rot(squares, "out.zarr/part/squares/c/1")
    found = store.get(squares.reference)
    with pytest.raises(ArtifactError, match="c/1"):
        store.check_files(found, every_byte=True)


def test_a_copy_is_on_the_disk_before_it_is_trusted(
    tmp_path: Path, store: Store, squares: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss can leave a file with the size, times and inode of its stamp, and no content."""
    shutil.copytree(store.root, tmp_path / "copy")
    synced: list[Path] = []
    monkeypatch.setattr("stages.artifacts.checksums.fsync", synced.append)
    for _ in range(2):
        copy = Store(tmp_path / "copy").get(squares.reference)
        assert synced == [copy.path / file for file in copy.manifest.files]


def test_missing_and_shortened_files_are_found(store: Store, squares: Artifact) -> None:
    note = squares.path / "note.txt"
    note.write_text("x")
    with pytest.raises(ArtifactError):
        store.get(squares.reference)
    note.unlink()
    with pytest.raises(ArtifactError, match=r"note\.txt"):
        store.get(squares.reference)


@pytest.mark.parametrize("version", [0, 99])
def test_another_format_is_no_damage(store: Store, squares: Artifact, version: int) -> None:
    path = squares.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": version}))
    with pytest.raises(UncheckedArtifact) as refused:
        store.get(squares.reference)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, "Upgrade memlm"),
        ({"format_version": 0}, "older than"),
        ({"format_version": "one"}, "has format 'one'"),
        ({"format_version": 99, "producer": ["memlm"]}, "written by memlm unknown"),
        ({"kind": [["tokens"]]}, "does not know"),
        ({"kind": "tapestry"}, "does not know"),
        ({"files": 3}, "damaged"),
    ],
)
def test_manifests_of_other_versions_or_damaged(
    store: Store, squares: Artifact, change: dict[str, object], message: str
) -> None:
    path = squares.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArtifactError, match=message):
        store.get(squares.reference)
    path.write_text("{")
    with pytest.raises(ArtifactError, match=f"--force {squares.reference}"):
        store.get(squares.reference)


NUMBERS = ["1e400", "-1e400", "Infinity", "NaN"]
QUOTED = [("seconds", f'"{number}"') for number in NUMBERS]


@pytest.mark.parametrize(
    ("field", "number"),
    [*((field, number) for field in ("seconds", "producer") for number in NUMBERS), *QUOTED],
)
def test_numbers_that_are_not_finite_are_damage(
    store: Store, squares: Artifact, field: str, number: str
) -> None:
    path = squares.path / "manifest.json"
    fields = json.loads(path.read_text()) | {
        field: "NUMBER" if field == "seconds" else {"python": ["NUMBER"]}
    }
    path.write_text(json.dumps(fields).replace('"NUMBER"', number))
    with pytest.raises(ArtifactError):
        store.get(squares.reference)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("metrics", {"sum": 286}),
        ("config", {"rows": 2}),
        ("inputs", {"squares": {"kind": "tokens", "id": "0" * 12, "digest": "0"}}),
        ("files", {"note.txt": {"bytes": 4, "blake2b": "0"}}),
        ("id", "0" * 12),
        ("outside_files", [["train", "0"]]),
    ],
)
def test_a_manifest_that_was_changed_in_place_is_damaged(
    store: Store, squares: Artifact, field: str, change: object
) -> None:
    path = squares.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: change}))
    with pytest.raises(ArtifactError, match=f"--force {squares.reference}"):
        store.open(squares.reference)


def test_verification_computes_the_id_again(
    store: Store, squares: Artifact, cubes: Artifact
) -> None:
    for artifact in (squares, cubes):
        store.check_files(artifact, every_byte=True)
    restate(squares.path, lambda manifest: manifest["config"].update(rows=2))
    with pytest.raises(ArtifactError):
        store.check_files(store.open(squares.reference), every_byte=True)


def test_a_manifest_of_another_stage_is_damage(store: Store, squares: Artifact) -> None:
    for stage, words in (
        ("cubes", "stage cubes makes model, not tokens"),
        ("squars", "did you mean 'squares'"),
    ):
        restate(squares.path, lambda manifest, stage=stage: manifest.update(stage=stage))
        with pytest.raises(ArtifactError, match=words):
            store.check_files(store.open(squares.reference), every_byte=True)


def test_a_manifest_without_a_digest_is_damage(store: Store, squares: Artifact) -> None:
    path = squares.path / "manifest.json"
    content = json.loads(path.read_text())
    del content["digest"]
    path.write_text(json.dumps(content))
    with pytest.raises(ArtifactError):
        store.open(squares.reference)


def test_a_shard_that_the_manifest_does_not_list_is_missing(
    store: Store, squares: Artifact
) -> None:
    shard = "out.zarr/part/squares/c/1"
    restate(squares.path, lambda manifest: manifest["files"].pop(shard, None))
    with pytest.raises(ArtifactError, match=shard):
        store.get(squares.reference)


@pytest.mark.parametrize("change", [{"shape": [10**15]}, {"shape": "x"}, {"chunk_grid": {}}])
def test_arrays_of_absurd_shapes_are_refused_at_once(
    store: Store, squares: Artifact, change: dict[str, object]
) -> None:
    path = squares.path / "out.zarr/part/squares/zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    restate(
        squares.path,
        lambda manifest: manifest["files"].update(
            {str(path.relative_to(squares.path)): file_entry(path)}
        ),
    )
    with pytest.raises(ArtifactError):
        store.get(squares.reference)


def test_an_array_without_rows_needs_no_shards(store: Store) -> None:
    nothing = make(Squares(), SquaresConfig(length=0), {}, store, Execution()).artifact
    assert store.get(nothing.reference).zarr("out.zarr")["part/squares"].shape == (0,)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"config": ' + "9" * 5000 + "}", "[]", '"x"', "\udc80"]
)
def test_manifests_of_odd_json_are_damaged(store: Store, squares: Artifact, content: str) -> None:
    (squares.path / "manifest.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ArtifactError):
        store.get(squares.reference)


def test_an_artifact_without_its_manifest_says_what_mends_it(
    store: Store, squares: Artifact
) -> None:
    (squares.path / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match=f"--force {squares.reference}"):
        store.get(squares.reference)


def test_an_unreadable_manifest_hides_only_its_own_artifact(
    store: Store, squares: Artifact, cubes: Artifact
) -> None:
    (squares.path / "manifest.json").write_text("{")
    assert [a.reference for a in store.artifacts()] == [cubes.reference]
    store.remove(squares.reference)
    assert not squares.path.exists()


def made_to_look_like_one(folder: Path, squares: Artifact) -> Path:
    """A stranger's folder that holds a manifest, and something to lose."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text((squares.path / "manifest.json").read_text())
    (folder / "thesis.txt").write_text("all of it")
    return folder


def test_a_path_is_no_way_to_remove_anything(
    tmp_path: Path, store: Store, squares: Artifact
) -> None:
    stranger = made_to_look_like_one(tmp_path / "stranger", squares)
    for path in (str(stranger), str(squares.path), f"{squares.path}/"):
        with pytest.raises(UsageError):
            store.remove(path)
    assert (stranger / "thesis.txt").exists() and squares.path.exists()


@pytest.mark.parametrize(
    "content",
    ["", "\n", "{stranger}", "../../../stranger", "..", ".", "0123456789AB", "\0", "x" * 300],
)
def test_a_name_that_holds_no_id_leads_nowhere(
    tmp_path: Path, store: Store, squares: Artifact, content: str
) -> None:
    stranger = made_to_look_like_one(tmp_path / "stranger", squares)
    store.name(squares, "mine")
    (store.root / "names" / "tokens" / "mine").write_text(content.format(stranger=stranger))
    for refused in (store.get, store.locate, store.remove):
        with pytest.raises(ArtifactError):
            refused("tokens/mine")
    assert (stranger / "thesis.txt").exists() and squares.path.exists()


@pytest.mark.parametrize(
    "name", ["../../../outside.txt", "{outside}", "a/../../../x", "", ".", "a\0b"]
)
def test_files_of_a_manifest_lie_in_its_folder(
    tmp_path: Path, store: Store, squares: Artifact, name: str
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("private")
    entry = {name.format(outside=outside): file_entry(outside)}
    restate(squares.path, lambda manifest: manifest["files"].update(entry))
    with pytest.raises(ArtifactError):
        store.get(squares.reference)


def test_a_folder_of_an_artifact_that_is_a_link_is_damage(
    tmp_path: Path, store: Store, squares: Artifact
) -> None:
    (squares.path / "out.zarr").rename(tmp_path / "elsewhere")
    (squares.path / "out.zarr").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError):
        store.get(squares.reference)


@pytest.mark.parametrize(
    "record", [{"id": "../../x"}, {"kind": "../tokens"}, {"kind": "x"}, {"id": "ab"}]
)
def test_inputs_of_a_manifest_are_kinds_and_ids(
    store: Store, cubes: Artifact, record: dict[str, str]
) -> None:
    restate(cubes.path, lambda manifest: manifest["inputs"]["squares"].update(record))
    with pytest.raises(ArtifactError):
        store.get(cubes.reference)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "\udcff"])
def test_odd_content_behind_the_right_hash_is_damage(
    store: Store, squares: Artifact, content: str
) -> None:
    for name, read in (
        ("note.txt", squares.json),
        ("out.zarr/zarr.json", lambda _: squares.zarr("out.zarr")),
    ):
        (squares.path / name).write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(ArtifactError, match=name):
            read(name)


def test_what_lies_behind_a_link_is_not_removed(
    tmp_path: Path, store: Store, squares: Artifact
) -> None:
    stranger = made_to_look_like_one(tmp_path / "others" / "0123456789ab", squares)
    (store.root / "tokens" / "0123456789ab").symlink_to(stranger)
    (store.root / "model").symlink_to(stranger.parent)
    for reference in ("tokens/0123456789ab", "model/0123456789ab"):
        with pytest.raises(ArtifactError):
            store.remove(reference)
    assert (stranger / "thesis.txt").exists()
    linked = Store(tmp_path / "link")
    linked.root.symlink_to(store.root)
    linked.remove(squares.reference)
    assert not squares.path.exists()  # the store itself may be reached by a link


def test_a_link_among_what_is_left_over_goes_alone(
    tmp_path: Path, store: Store, squares: Artifact
) -> None:
    stranger = made_to_look_like_one(tmp_path / "stranger", squares)
    (store.root / "tokens" / ".0123456789ab-partial").symlink_to(stranger)
    remove_garbage(store, find_garbage(store))
    assert not find_garbage(store)
    assert (stranger / "thesis.txt").exists()


def test_an_input_that_is_gone_is_named(store: Store, squares: Artifact, cubes: Artifact) -> None:
    store.name(squares, "gone")
    store.remove(squares.reference)
    assert store.names("tokens") == {}
    with pytest.raises(ArtifactError, match=rf"{squares.reference}.*memlm tokenize"):
        store.get(cubes.reference).input("squares")


def test_what_lies_in_another_store_is_refused(tmp_path: Path, squares: Artifact) -> None:
    with pytest.raises(ArtifactError):
        make(
            Cubes(),
            SquaresConfig(),
            {"source": str(squares.path)},
            Store(tmp_path / "other"),
            Execution(),
        )


def test_garbage_is_what_serves_nobody(store: Store, squares: Artifact, cubes: Artifact) -> None:
    with pytest.raises(RuntimeError):
        make(Squares(2, RuntimeError()), SquaresConfig(length=9), {}, store, Execution())
    lost = make(Squares(), SquaresConfig(length=3), {}, store, Execution()).artifact
    store.name(cubes, "kept")
    assert find_garbage(store) == []
    (draft,) = find_garbage(store, interrupted=True)
    assert draft.bytes > 0 and draft.artifact is None
    found = find_garbage(store, unnamed=True, interrupted=True)
    assert [g.artifact for g in found if g.artifact] == [lost.reference]
    remove_garbage(store, found)
    assert {a.reference for a in store.artifacts()} == {squares.reference, cubes.reference}
    assert not find_garbage(store, unnamed=True)


def test_interrupted_work_goes_after_a_week_or_if_it_cannot_be_resumed(
    store: Store, squares: Artifact
) -> None:
    with pytest.raises(RuntimeError):
        make(Squares(2, RuntimeError()), SquaresConfig(length=9), {}, store, Execution())
    (draft,) = (garbage.path for garbage in find_garbage(store, interrupted=True))

    def write_all(days: float) -> None:
        moment = time.time() - days * 24 * 3600
        for path in (*draft.rglob("*"), draft):
            os.utime(path, (moment, moment))

    write_all(6.9)
    assert find_garbage(store) == []
    write_all(-1)  # the clock was wrong
    assert find_garbage(store) == []
    write_all(7.1)
    assert [garbage.path for garbage in find_garbage(store)] == [draft]
    write_all(0)
    (draft / "link").symlink_to(store.root)
    assert [garbage.path for garbage in find_garbage(store)] == [draft]
    (draft / "link").unlink()
    (draft / "work.json").unlink()
    assert [garbage.path for garbage in find_garbage(store)] == [draft]


def test_what_interrupted_work_reads_is_kept_with_it(
    store: Store, squares: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"source": squares.reference}
    cube = Cubes.run_shard

    def crash_at_third(stage: Cubes, job: Any, resources: Any, shard: Any) -> Any:
        if shard.key == "002":
            raise RuntimeError
        return cube(stage, job, resources, shard)

    monkeypatch.setattr(Cubes, "run_shard", crash_at_third)
    with pytest.raises(RuntimeError):
        make(Cubes(), SquaresConfig(), source, store, Execution())
    monkeypatch.undo()
    remove_garbage(store, find_garbage(store, unnamed=True))
    made = make(Cubes(), SquaresConfig(), source, store, Execution())
    assert made.status == "resumed"


def test_nothing_goes_for_want_of_a_name_while_an_artifact_does_not_say_what_it_was_made_from(
    store: Store, squares: Artifact, cubes: Artifact
) -> None:
    store.name(cubes, "kept")
    (cubes.path / "manifest.json").write_text("{")
    for opened in (store, Store(store.root)):
        with pytest.raises(ArtifactError, match=cubes.reference):
            find_garbage(opened, unnamed=True)
    store.remove(cubes.reference)
    assert [g.artifact for g in find_garbage(store, unnamed=True)] == [squares.reference]


def test_of_two_that_remove_the_same_the_later_does_nothing(
    store: Store, squares: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(store.root)
    first = []

    def names(self: Store, kind: str) -> dict[str, str]:
        monkeypatch.undo()
        other.remove(squares.reference)
        first.append(kind)
        return other.names(kind)

    monkeypatch.setattr(Store, "names", names)
    store.remove(squares.reference)
    assert first == ["tokens"] and store.references() == [] and find_garbage(store) == []


def test_a_file_in_the_place_of_an_artifact_is_called_one(store: Store, tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("It was")
    with pytest.raises(ArtifactError, match="memlm tokenize reads"):
        store.get(str(tmp_path / "novel.txt"), "tokens")


@pytest.mark.parametrize("field", ["command", "created", "seconds", "producer"])
def test_a_change_in_what_differs_between_equal_works_is_seen(
    store: Store, squares: Artifact, field: str
) -> None:
    path = squares.path / "manifest.json"
    content = json.loads(path.read_text())
    changed = {"command": ["train"], "created": "2001", "seconds": 1e9, "producer": {}}
    path.write_text(json.dumps(content | {field: changed[field]}))
    with pytest.raises(ArtifactError, match="does not say what it said"):
        store.open(squares.reference)


def test_a_manifest_of_an_older_memlm_has_no_checksum(store: Store, squares: Artifact) -> None:
    path = squares.path / "manifest.json"
    content = json.loads(path.read_text())
    assert len(content.pop("checksum")) == 128
    path.write_text(json.dumps(content))
    store.check_files(store.open(squares.reference), every_byte=True)
