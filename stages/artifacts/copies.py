"""Copies of artifacts in a bucket: file by file, the manifest last, so that what has a manifest is whole."""

from collections.abc import Iterator

from stages.artifacts.artifact import Artifact
from stages.artifacts.bucket import Bucket
from stages.artifacts.checksums import FileEntry
from stages.artifacts.disk_failures import disk_failure
from stages.artifacts.draft import Draft, publish
from stages.artifacts.durable import remove_folder
from stages.artifacts.facts import wrong_facts
from stages.artifacts.kinds import USED_UP
from stages.artifacts.lineage import ancestors
from stages.artifacts.lock import held
from stages.artifacts.manifest import MANIFEST, Manifest, parse_manifest
from stages.artifacts.references import is_id, split_reference
from stages.artifacts.shard_files import missing_shards
from stages.artifacts.stamps import write_stamps
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, ResourceError, UsageError
from stages.reporting import Reporter


def push(reference: str, store: Store, bucket: Bucket, reporter: Reporter) -> list[str]:
    """Copy an artifact, and what of all that it was made from is there, into a bucket.

    Returns: references of what was copied; what the bucket has already is left out.
    Raises: ArtifactError if the bucket has other bytes under that id, or something here is damaged; DataError if the
        bucket does not answer.
    """
    wanted = ancestors({store.open(reference).reference}, store.artifacts())
    missing = [a for a in store.artifacts() if a.reference in wanted and not _is_there(a, bucket)]
    total, sent = sum(artifact.manifest.bytes for artifact in missing), 0
    for artifact in missing:
        store.check_files(artifact)
        for file, entry in artifact.manifest.files.items():
            bucket.upload(f"{artifact.reference}/{file}", artifact.path / file)
            sent += entry["bytes"]
            reporter.progress(sent, total, "bytes")
        if not bucket.create(f"{artifact.reference}/{MANIFEST}", artifact.manifest.dumps().encode()):
            _is_there(artifact, bucket)
    return [artifact.reference for artifact in missing]


def _is_there(artifact: Artifact, bucket: Bucket) -> bool:
    """Whether a bucket has a whole copy. Raises: ArtifactError if it is one of something else."""
    manifest = _manifest(artifact.reference, bucket)
    if manifest is None:
        return False
    _require_same(artifact, manifest, bucket)
    return True


def _require_same(artifact: Artifact, manifest: Manifest, bucket: Bucket) -> None:
    if not artifact.matches(Artifact(artifact.store, artifact.path, manifest).record):
        raise ArtifactError(
            f"{artifact.reference} of {bucket.url} has other bytes than the one in {artifact.store.root}, though both "
            "are of the same work (made on other machines, perhaps). Choose one: remove the other, or copy elsewhere."
        )


def _manifest(reference: str, bucket: Bucket) -> Manifest | None:
    """What a bucket says of an artifact; None if it has none, or not all of it."""
    content = bucket.read(f"{reference}/{MANIFEST}")
    if content is None:
        return None
    manifest = parse_manifest(content, f"{bucket.url}/{reference}", "remove that copy, and push it again")
    if f"{manifest.kind}/{manifest.id}" != reference:
        raise ArtifactError(f"{bucket.url}/{reference} holds {manifest.kind}/{manifest.id}: push it again.")
    return manifest


def pull(reference: str, store: Store, bucket: Bucket, reporter: Reporter) -> list[str]:
    """Copy an artifact, and what it was made from as far as the bucket has it, from a bucket into a store.

    Interrupted, the same call goes on behind the last whole file. Every byte is compared with the manifest.

    Returns: references of what was copied, those that others were made from first; what the store has is left out.
    Raises: UsageError if the reference is no kind/id; DataError if the bucket lacks it, or something that it cannot be
        read without; ArtifactError if what arrives is damaged; ResourceError if the disk is full.
    """
    parts = split_reference(reference)
    if parts is None or not is_id(parts[1]):
        raise UsageError(f"{reference!r} is no kind/id: names are a store's own; memlm artifacts list shows the ids.")
    missing = []
    for manifest in _with_inputs(reference, bucket, set()):
        if store.has(manifest.kind, manifest.id):
            _require_same(store.open(f"{manifest.kind}/{manifest.id}"), manifest, bucket)
        else:
            missing.append(manifest)
    try:
        for manifest in missing:
            _Arrival(manifest, store, bucket).take(reporter)
    except OSError as error:
        failure = disk_failure(error, store.root)
        if failure is not None:
            raise ResourceError(failure) from error
        raise
    return [f"{manifest.kind}/{manifest.id}" for manifest in missing]


def _with_inputs(reference: str, bucket: Bucket, seen: set[str]) -> Iterator[Manifest]:
    """What an artifact was made from, all of it, and then the artifact."""
    manifest = _manifest(reference, bucket)
    if manifest is None:
        raise DataError(f"{bucket.url} has no {reference}, or not all of it: memlm artifacts push copies it there.")
    seen.add(reference)
    for role, record in manifest.inputs.items():
        needed = role not in USED_UP
        if record.reference not in seen and (needed or _manifest(record.reference, bucket) is not None):
            yield from _with_inputs(record.reference, bucket, seen)
    yield manifest


class _Arrival:
    """One artifact on its way into a store."""

    def __init__(self, manifest: Manifest, store: Store, bucket: Bucket) -> None:
        self.manifest, self.store, self.bucket = manifest, store, bucket
        self.reference = f"{manifest.kind}/{manifest.id}"
        wrong = wrong_facts(manifest)
        if wrong is None and manifest.recomputed_id not in (None, manifest.id):
            wrong = f"what its manifest describes has the id {manifest.recomputed_id}"
        if wrong is not None:
            raise self._damaged(wrong)

    def take(self, reporter: Reporter) -> None:
        """Receive it whole, or go on where an earlier attempt ended."""
        kind, id = self.manifest.kind, self.manifest.id
        with held(self.store.lock_file(kind, id), self.reference, wait=True, reporter=reporter):
            if self.store.has(kind, id):
                return
            folder, final = self.store.draft_folder(kind, id), self.store.folder(kind, id)
            draft = Draft(folder, {"id": id, "copy": Artifact(self.store, folder, self.manifest).digest})
            try:
                files = self._files(draft, reporter)
            finally:
                draft.close()
            wrong = {name for name, entry in self.manifest.files.items() if files.get(name) != entry}
            wrong |= set(missing_shards(folder, self.manifest.files))
            if wrong:
                remove_folder(folder)
                raise self._damaged(f"{min(wrong)} is not what the manifest says")
            publish(folder, self.manifest, final)
            write_stamps(self.store.stamp_file(kind, id), final, self.manifest.files)

    def _files(self, draft: Draft, reporter: Reporter) -> dict[str, FileEntry]:
        """Receive what is not there yet; sizes and digests of all."""
        draft.expect(self.manifest.bytes)
        arrived = 0
        for name, entry in self.manifest.files.items():
            if not draft.done(name):
                self._receive(name, entry["bytes"], draft)
            arrived += entry["bytes"]
            reporter.progress(arrived, self.manifest.bytes, "bytes")
        return draft.finish_files()

    def _receive(self, name: str, size: int, draft: Draft) -> None:
        with draft.add(name).open("wb") as file:
            for block in self.bucket.stream(f"{self.reference}/{name}"):
                if file.tell() + len(block) > size:
                    raise self._damaged(f"{name} is longer than the manifest says")
                file.write(block)
        draft.commit(name)

    def _damaged(self, what: str) -> ArtifactError:
        return ArtifactError(f"The copy {self.bucket.url}/{self.reference} is damaged: {what}; push it again.")
