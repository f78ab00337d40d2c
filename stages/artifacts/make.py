"""Making an artifact: identity, lock, draft, shards on an executor, and manifest.

This is the only module that uses all of them.
"""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from stages.artifacts import EXECUTORS
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import write_stamps
from stages.artifacts.draft import Draft, finished_manifest, publish
from stages.artifacts.durable import disk_failure, make_folder
from stages.artifacts.executors.executor import Executor, ShardTask
from stages.artifacts.lock import hold_lock
from stages.artifacts.manifest import (
    MANIFEST,
    Manifest,
    require_same_defaults,
)
from stages.artifacts.output import Written
from stages.artifacts.references import REMOVE, advised
from stages.artifacts.resolved_work import ResolvedWork, package_version, plan
from stages.artifacts.stage import (
    C,
    Execution,
    Inputs,
    Job,
    SerialWork,
    Shard,
    Stage,
)
from stages.artifacts.store import Store
from stages.errors import ArtifactError, ResourceError, UsageError
from stages.numbers import size
from stages.reporting import Reporter

NOTABLE_BYTES = 1_000_000
"""Least disk usage that is reported; smaller work fits anywhere."""


def run_stage(stage: Stage[C], job: Job[C]) -> dict[str, Any]:
    """Do the work of a stage in its draft, resuming from committed units; returns the metrics."""
    work = stage.work(job.config)
    if isinstance(work, SerialWork):
        return work.run(job)
    with job.draft.first_look():
        plan = work.plan(job)
    for layout in plan.arrays:
        job.draft.create(layout)
    if plan.bytes:
        if plan.bytes >= NOTABLE_BYTES:
            job.reporter.info(
                f"takes up to {size(plan.bytes)} of disk while it works, in {job.folder.parent}"
            )
        job.draft.expect(plan.bytes)
    run_shards(stage, job, plan)
    return work.finish(job, plan)


def run_shards(stage: Stage[Any], job: Job[Any], plan: Any) -> None:
    """Compute and commit all shards that are not committed yet, phase after phase.

    Raises: the error of a shard; the same call then resumes after the committed shards.
    """
    draft = job.draft
    reporter = job.reporter
    shards = plan.shards
    waiting = [shard for shard in shards if not draft.done(shard.key)]
    done = len(shards) - len(waiting)
    if draft.resumed:
        reporter.info(f"resumed: {done} of {len(shards)} shards")
    progress = PhaseProgress(shards, reporter)

    def commit(written: Written) -> None:
        draft.append(written)
        progress.add(written.key)

    # Workers read files that the plan has committed.
    draft.flush()
    task = ShardTask(stage, job.for_shards(), plan)
    executor: Executor = EXECUTORS.load(job.execution.executor)(task, commit, reporter)
    with closing(executor):
        for _, phase in groupby(waiting, attrgetter("phase")):
            together = list(phase)
            if together[0].title is not None:
                reporter.info(together[0].title)
            progress.begin(together)
            executor.run(chains_of(together))


class PhaseProgress:
    """Progress of one phase after the other, in units of its shards.

    Each phase is counted by itself: phases differ in speed, and shards in size, so the time that is
    left would be wrong by several times otherwise.
    """

    def __init__(self, shards: Sequence[Shard], reporter: Reporter) -> None:
        self._shards = {shard.key: shard for shard in shards}
        self._reporter = reporter
        self._done = 0
        self._total = 0
        self._unit = ""

    def begin(self, waiting: Sequence[Shard]) -> None:
        """Begin a phase, whose other shards were done before."""
        shard = waiting[0]
        whole = [other for other in self._shards.values() if other.phase == shard.phase]
        self._unit = shard.unit
        self._total = sum(other.amount for other in whole)
        self._done = self._total - sum(other.amount for other in waiting)
        self._report()

    def add(self, key: str) -> None:
        """Count a shard that is done."""
        self._done += self._shards[key].amount
        self._report()

    def _report(self) -> None:
        self._reporter.progress(self._done, self._total, self._unit)


def chains_of(shards: Iterable[Shard]) -> list[list[Shard]]:
    """Shards grouped by chain, in order; a chain has the place of its first shard."""
    chains: dict[str, list[Shard]] = {}
    for shard in shards:
        chains.setdefault(
            f"shard {shard.key}" if shard.chain is None else f"chain {shard.chain}", []
        ).append(shard)
    return list(chains.values())


Status = Literal["made", "resumed", "cached"]


@dataclass(frozen=True)
class Outcome:
    """An artifact, and whether it had to be made."""

    artifact: Artifact
    status: Status


def make(
    stage: Stage[C], config: C, references: Mapping[str, Any], store: Store, execution: Execution
) -> Outcome:
    """The artifact of a stage: an existing one, or a new one, which may resume an interrupted
    attempt.

    Raises: the errors of the stage; BusyError; ArtifactError if the artifact exists but was made
        from other bytes; ResourceError if the disk is full.
    """
    work = plan(stage, config, references, store, execution)
    # No lock is needed here: a published artifact never changes.
    if store.has(work.kind, work.id):
        return Outcome(_checked(work, store), "cached")
    if store.folder(work.kind, work.id).exists() and not store.has(work.kind, work.id):
        raise ArtifactError(
            f"{work.reference} is damaged: {store.folder(work.kind, work.id)} has no {MANIFEST}. "
            f"Make it again: {advised(store.root, *REMOVE, work.reference)}, then the same command."
        )
    _require_folder(store)
    lock_file = store.lock_file(work.kind, work.id)
    helped = work.follow(execution)
    try:
        with hold_lock(
            lock_file, work.reference, wait=execution.wait or helped, reporter=execution.reporter
        ):
            # Checked again, since another process may have made it while this one waited.
            if store.has(work.kind, work.id):
                return Outcome(_checked(work, store), "cached")
            command = stage.recorded_command(_by_id(references, store, execution), work.config)
            return _make_locked(work, store, execution, command)
    except Exception as error:
        failure = disk_failure(error, store.root)
        if failure is not None:
            raise ResourceError(failure) from error
        raise


def _require_folder(store: Store) -> None:
    """Make the store's folder. Raises: UsageError for an impossible path; errors of the disk are
    handled elsewhere.
    """
    try:
        make_folder(store.root)
    except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"The store {store.root} cannot be made ({error.strerror}): name another."
        ) from None


def _checked(work: ResolvedWork[C], store: Store) -> Artifact:
    artifact = store.get(work.reference)
    # An id leaves out defaults: after a default has changed, the same id may name other work.
    require_same_defaults(artifact.manifest)
    for role, read in work.inputs.artifacts.items():
        if not read.matches(artifact.manifest.inputs.get(role)):
            raise ArtifactError(
                f"{work.reference} is there, but was made from {read.reference} when that had other bytes; "
                f"make it again: {advised(store.root, *REMOVE, work.reference)}, then the same command."
            )
    return artifact


def _by_id(references: Mapping[str, Any], store: Store, execution: Execution) -> list[str]:
    """The words of the command, with ids for names of artifacts, since names can move to other
    artifacts.
    """
    ids = dict[str, str]()
    for typed in references.values():
        if isinstance(typed, str):
            with suppress(ArtifactError, UsageError):
                ids[typed] = store.open(typed).reference
    return [ids.get(word, word) for word in execution.command]


def _make_locked(
    work: ResolvedWork[C], store: Store, execution: Execution, command: list[str]
) -> Outcome:
    folder = store.draft_folder(work.kind, work.id)
    # An attempt that ended between the manifest and the rename only lacks the rename.
    finished = finished_manifest(folder)
    if finished is not None and finished.inputs == work.records:
        return Outcome(_publish(work, store, finished), "resumed")
    draft = Draft(folder, work.draft_record, _read_folders(work.inputs))
    if draft.damage:
        execution.reporter.warning(draft.damage)
    try:
        metrics = run_stage(work.stage, Job(work.config, work.inputs, folder, execution, draft))
        manifest = work.manifest(
            files=draft.finish_files(),
            metrics=metrics,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(draft.seconds, 3),
            producer=_producer(execution.device_of(work.stage.Config)),
            command=command,
        )
        _require_schema(work.stage, manifest)
    except Exception as error:
        failure = disk_failure(error, store.root, draft.missing_bytes)
        if failure is not None:
            raise ResourceError(failure) from error
        # If an input was removed, that is the cause of the error, and is raised instead.
        draft.require_reads()
        raise
    finally:
        draft.close()
    return Outcome(_publish(work, store, manifest), "resumed" if draft.resumed else "made")


def _require_schema(stage: Stage[Any], manifest: Manifest) -> None:
    """Check the metrics that a stage returned. Raises: TypeError, a bug of the stage, if its schema
    refuses them.
    """
    metrics = json.loads(manifest.dumps())["metrics"]
    try:
        stage.schema.metrics.model_validate(metrics)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise TypeError(
            f"{stage.name} returned metrics that its own schema refuses: {name}: {first['msg']}"
        ) from None


def _read_folders(inputs: Inputs) -> set[Path]:
    """Folders of the inputs, and of their ancestors in the store."""
    folders = set[Path]()
    waiting = list(inputs.artifacts.values())
    while waiting:
        artifact = waiting.pop()
        if artifact.path not in folders:
            folders.add(artifact.path)
            for record in artifact.manifest.inputs.values():
                with suppress(ArtifactError):
                    waiting.append(artifact.store.open(record.reference))
    return folders


def _publish(work: ResolvedWork[C], store: Store, manifest: Manifest) -> Artifact:
    final = store.folder(work.kind, work.id)
    publish(store.draft_folder(work.kind, work.id), manifest, final)
    # Each file was hashed when it was committed, so its first reader need not hash it again.
    write_stamps(store.stamp_file(work.kind, work.id), final, manifest.files)
    return store.get(work.reference)


def _producer(device: str) -> dict[str, Any]:
    packages = {"faiss": "faiss-cpu", "faiss_gpu": "faiss-gpu"} | {
        name: name for name in ("memlm", "torch", "zarr")
    }
    return {
        **{
            name: package_version(package)
            for name, package in packages.items()
            if package_version(package)
        },
        "python": platform.python_version(),
        # The kernel's version says more about the machine than about the result.
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
    }
