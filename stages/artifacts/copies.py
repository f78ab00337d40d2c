"""Copies of artifacts in a bucket, in this layout:

    KIND/ID/manifest.json           written last and never replaced: a copy that has one is complete
    KIND/ID/DIGEST/FILE             the files; DIGEST is the digest of the manifest's bytes

If two users do the same work and push it, neither overwrites files of the other.
"""

import hashlib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

from stages.artifacts.arrays import missing_shards
from stages.artifacts.artifact import Artifact, needed_for
from stages.artifacts.bucket import Bucket
from stages.artifacts.checksums import FileEntry, write_stamps
from stages.artifacts.draft import PROGRESS, SCRATCH, Draft, finished_manifest, publish
from stages.artifacts.durable import disk_failure, remove_folder
from stages.artifacts.kinds import KINDS, USED_UP
from stages.artifacts.lock import ATTEMPT, hold_lock
from stages.artifacts.manifest import Manifest, parse_manifest, wrong_manifest
from stages.artifacts.references import MANIFEST, REMOVE, WORK, advised, is_id, split_reference
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, ResourceError, UsageError
from stages.reporting import Reporter

MAX_MANIFEST_BYTES = 1 << 28
"""Most bytes of a manifest; a datastore of 100 million keys has a manifest of a few million."""
RESERVED = {MANIFEST, WORK, PROGRESS, SCRATCH, ATTEMPT}
"""Files of a draft that are not files of its artifact."""


class Copy:
    """A copy of an artifact in a bucket, which may still have to be uploaded."""

    def __init__(self, manifest: Manifest, content: bytes, bucket: Bucket) -> None:
        """`content`: the bytes of the manifest."""
        self.manifest = manifest
        self.content = content
        self.bucket = bucket
        self.reference = f"{manifest.kind}/{manifest.id}"
        self._folder = f"{self.reference}/{hashlib.blake2b(content, digest_size=16).hexdigest()}"

    @classmethod
    def of(cls, artifact: Artifact, bucket: Bucket) -> "Copy":
        """The copy of a local artifact, which may not exist yet."""
        manifest = published(artifact.manifest)
        return cls(manifest, manifest.dumps().encode(), bucket)

    @classmethod
    def find(cls, reference: str, bucket: Bucket) -> "Copy | None":
        """The copy of a `kind/id`; None if it is missing or incomplete. Raises: ArtifactError if it
        is damaged.
        """
        content = bucket.read(f"{reference}/{MANIFEST}", MAX_MANIFEST_BYTES)
        if content is None:
            return None
        copy = cls(
            parse_manifest(content, f"{bucket.url}/{reference}", _mend(reference, bucket)),
            content,
            bucket,
        )
        if copy.reference != reference:
            raise ArtifactError(
                f"{bucket.url}/{reference} holds {copy.reference}; {_mend(reference, bucket)}."
            )
        return copy

    @classmethod
    def all(cls, bucket: Bucket) -> "Iterator[Copy]":
        """All complete copies in a bucket. Raises: ArtifactError if one is damaged."""
        for kind in KINDS:
            for id in sorted(filter(is_id, bucket.folders(kind))):
                copy = cls.find(f"{kind}/{id}", bucket)
                if copy is not None:
                    yield copy

    def name(self, file: str) -> str:
        """Name of a file in the bucket."""
        return f"{self._folder}/{file}"

    def require_same(self, manifest: Manifest, root: Path) -> None:
        """Check the bytes of the artifact of this id in the store at `root`. Raises: ArtifactError
        if they are others.
        """
        if manifest.record != self.manifest.record:
            raise ArtifactError(
                f"{self.reference} in {self.bucket.url} differs from the one in {root}, though both are results "
                "of the same work (perhaps on different machines). Remove one, or copy to another place."
            )

    def damaged(self, what: str) -> ArtifactError:
        return ArtifactError(
            f"The copy {self.bucket.url}/{self.reference} is damaged: {what}; {_mend(self.reference, self.bucket)}."
        )


def published(manifest: Manifest) -> Manifest:
    """A manifest without the folders of this machine: of a path in its command, the last name."""
    command = [without_folders(word) for word in manifest.command]
    if command == manifest.command:
        return manifest
    return manifest.model_copy(update={"command": command}).sealed()


def without_folders(word: str) -> str:
    """The last name of a path that leads out of the folder of the command; other words stay.

    >>> [without_folders(word) for word in ("/home/anna/books/a.txt", "--out=~/b.txt", "../c.txt")]
    ['a.txt', '--out=b.txt', 'c.txt']
    >>> [without_folders(word) for word in ("tokens/books", "corpus/a.txt", "--lambda=0.5")]
    ['tokens/books', 'corpus/a.txt', '--lambda=0.5']
    """
    if _leads_out(word):
        return PurePosixPath(word).name
    option, equals, value = word.partition("=")
    return f"{option}{equals}{PurePosixPath(value).name}" if _leads_out(value) else word


def _leads_out(path: str) -> bool:
    return path.startswith(("/", "~", "../")) or "/../" in path


def _mend(reference: str, bucket: Bucket) -> str:
    return f"remove {bucket.url}/{reference}/{MANIFEST}, and push it again"


# From a store to a bucket


def push(reference: str, store: Store, bucket: Bucket, reporter: Reporter) -> list[str]:
    """Copy an artifact, and the ancestors that are needed to read it, into a bucket.

    The datastore before an update is not needed: it may hold documents that the update forgot.

    Returns: references of the copies that were made or completed, without those that were complete
    before.
    Raises: ArtifactError if the bucket has other bytes under that id, or a local artifact is
        damaged; DataError if the bucket does not answer.
    """
    chosen = store.open(reference)
    artifacts = chosen.store.artifacts()
    needed = needed_for({chosen.reference}, artifacts)
    incomplete: list[tuple[Artifact, list[str]]] = []
    total_bytes = 0
    for artifact in artifacts:
        files = _missing(artifact, bucket) if artifact.reference in needed else None
        if files is not None:
            incomplete.append((artifact, files))
            total_bytes += sum(artifact.manifest.files[file]["bytes"] for file in files)
    sent_bytes = 0

    def report(count: int) -> None:
        nonlocal sent_bytes
        sent_bytes += count
        reporter.progress(sent_bytes, total_bytes, "bytes")

    for artifact, files in incomplete:
        artifact.store.check_files(artifact)
        copy = Copy.of(artifact, bucket)
        for file in files:
            bucket.upload(copy.name(file), artifact.path / file, report)
        # The manifest is written last and never replaced, so its presence proves that all files are
        # there.
        if not bucket.create(f"{artifact.reference}/{MANIFEST}", copy.content):
            other = Copy.find(artifact.reference, bucket)
            if other is not None:
                other.require_same(artifact.manifest, artifact.store.root)
    return [artifact.reference for artifact, _ in incomplete]


def _missing(artifact: Artifact, bucket: Bucket) -> list[str] | None:
    """Files that an artifact's copy lacks; None if it is complete. Raises: ArtifactError if its
    bytes differ.
    """
    there = Copy.find(artifact.reference, bucket)
    if there is None:
        return list(artifact.manifest.files)
    there.require_same(artifact.manifest, artifact.store.root)
    if there.content != Copy.of(artifact, bucket).content:
        return None  # It is the result of another run, and differs only in its log.
    files = artifact.manifest.files.items()
    return [
        file for file, entry in files if bucket.size(there.name(file)) != entry["bytes"]
    ] or None


# From a bucket to a store


def pull(reference: str, store: Store, bucket: Bucket, reporter: Reporter) -> list[str]:
    """Copy an artifact, and its ancestors in the bucket, into a store.

    After an interruption the same call resumes after the last complete file. Each file's digest is
    checked.

    Returns: references of the new copies, inputs first, without those that the store had before.
    Raises: UsageError if the reference is no kind/id; DataError if the bucket lacks the artifact or
        an input that it needs; ArtifactError if a copy is damaged; ResourceError if the disk is
        full.
    """
    parts = split_reference(reference)
    if parts is None or not is_id(parts[1]):
        raise UsageError(
            f"{reference!r} is no kind/id: names hold only in one store; memlm artifacts list shows ids."
        )
    missing = []
    for copy in _with_inputs(reference, bucket):
        if store.has(copy.manifest.kind, copy.manifest.id):
            copy.require_same(store.open(copy.reference).manifest, store.root)
        else:
            _require_new(copy, store)
            missing.append(copy)
    try:
        for copy in missing:
            _receive(copy, store, reporter)
    except OSError as error:
        failure = disk_failure(error, store.root)
        if failure is not None:
            raise ResourceError(failure) from error
        raise
    return [copy.reference for copy in missing]


def _with_inputs(reference: str, bucket: Bucket) -> list[Copy]:
    """The artifact and the ancestors that are needed to read it, each after its own inputs."""
    copies: dict[str, Copy] = {}
    inputs: dict[str, list[str]] = {}
    waiting = [reference]
    while waiting:
        needed = waiting.pop()
        if needed in copies:
            continue
        copy = Copy.find(needed, bucket)
        if copy is None:
            raise DataError(
                f"{bucket.url} has no {needed}, or not all of it: memlm artifacts push copies it "
                "there."
            )
        copies[needed] = copy
        inputs[needed] = [
            record.reference for role, record in copy.manifest.inputs.items() if role not in USED_UP
        ]
        waiting += inputs[needed]

    try:
        order = list(TopologicalSorter(inputs).static_order())
    except CycleError as error:
        raise copies[error.args[1][0]].damaged("its inputs form a cycle") from None
    return [copies[reference] for reference in order]


def _require_new(copy: Copy, store: Store) -> None:
    """Raises: ArtifactError if a manifest is invalid, the names of its files conflict, or its
    folder exists already.
    """
    manifest = copy.manifest
    damage = wrong_manifest(manifest) or manifest.wrong_id
    paths = {PurePosixPath(file) for file in manifest.files}
    folders = {parent for path in paths for parent in path.parents}
    top_names = {path.parts[0] for path in paths}
    # A path cannot be a file and a folder, nor may it take the name of a draft's file.
    if damage is None and (paths & folders or RESERVED & top_names):
        damage = "the file names in its manifest conflict"
    if damage is not None:
        raise copy.damaged(damage)

    folder = store.folder(manifest.kind, manifest.id)
    if folder.exists():
        raise ArtifactError(
            f"{folder} exists, but has no {MANIFEST}. Remove it: {advised(store.root, *REMOVE, copy.reference)}, "
            "then run the same command."
        )


def _receive(copy: Copy, store: Store, reporter: Reporter) -> None:
    """Copy one artifact, or resume where an earlier attempt ended."""
    kind = copy.manifest.kind
    id = copy.manifest.id
    with hold_lock(store.lock_file(kind, id), copy.reference, wait=True, reporter=reporter):
        # Checked again, since another pull may have finished meanwhile.
        if store.has(kind, id):
            return

        draft_folder = store.draft_folder(kind, id)
        manifest = finished_manifest(draft_folder)
        if manifest is None:
            _fill(copy, draft_folder, store, reporter)
            manifest = copy.manifest
        else:
            # An earlier pull ended while publishing: all files are there, but perhaps not the work
            # file.
            copy.require_same(manifest, store.root)

        final = store.folder(kind, id)
        publish(draft_folder, manifest, final)
        write_stamps(store.stamp_file(kind, id), final, manifest.files)


def _fill(copy: Copy, folder: Path, store: Store, reporter: Reporter) -> None:
    """Receive the files of a copy. Raises: ArtifactError if the store has another draft, or the
    copy is damaged.
    """
    work = {"id": copy.manifest.id, "copy": hashlib.blake2b(copy.content).hexdigest()}
    if (folder / WORK).exists() and not Draft.is_of(folder, work):
        raise ArtifactError(
            f"{copy.reference} is unfinished in {store.root}: finish it with the command that began it "
            f"({copy.manifest.stage}), or discard it with memlm artifacts gc --interrupted."
        )
    draft = Draft(folder, work)
    try:
        draft.expect(copy.manifest.bytes)
        files = _files(copy, draft, reporter)
    finally:
        draft.close()

    damaged = {name for name, entry in copy.manifest.files.items() if files.get(name) != entry}
    damaged |= set(missing_shards(folder, copy.manifest.files))
    if damaged:
        remove_folder(folder)
        raise copy.damaged(f"{min(damaged)} is not what the manifest says")


def _files(copy: Copy, draft: Draft, reporter: Reporter) -> dict[str, FileEntry]:
    """Receive the missing files; returns sizes and digests of all files."""
    arrived = 0
    for name, entry in copy.manifest.files.items():
        if draft.done(name):
            arrived += entry["bytes"]
            continue
        digest = hashlib.blake2b()
        with draft.add(name).open("wb") as file:
            for block in copy.bucket.stream(copy.name(name)):
                # Checked for each block, since an endless stream would fill the disk before its
                # digest is compared.
                if file.tell() + len(block) > entry["bytes"]:
                    raise copy.damaged(f"{name} is longer than its manifest says")
                file.write(block)
                digest.update(block)
                arrived += len(block)
                reporter.progress(arrived, copy.manifest.bytes, "bytes")
        if digest.hexdigest() != entry["blake2b"]:
            raise copy.damaged(f"{name} is not what its manifest says")
        draft.commit(name)
    return draft.finish_files()
