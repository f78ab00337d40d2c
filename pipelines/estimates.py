"""Plans, and whether they fit: the state of each task, its needs by arithmetic, and the
time that the same settings took before in this store.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.catalogue import stage_of
from pipelines.recipe import Recipe, Reference, bound
from pipelines.settings import leaves
from stages.artifacts.artifact import Artifact
from stages.artifacts.garbage import folder_bytes
from stages.artifacts.needs import needs_of
from stages.artifacts.resolved_work import ResolvedWork, plan
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import ArtifactError, MemlmError
from stages.numbers import size
from stages.text.tokens import SPLITS


class ExpectedStore(Store):
    """A read-only store, with expected artifacts on top of it; their files do not exist."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self._expected: dict[str, Artifact] = {}

    def expect(self, work: ResolvedWork[Any], metrics: Mapping[str, Any]) -> Artifact:
        """Add an expected artifact, of which only some metrics are known."""
        manifest = work.manifest(
            files={}, metrics=dict(metrics), created="", seconds=0.0, producer={}
        )
        artifact = Artifact(self, self.folder(work.kind, work.id), manifest)
        self._expected[artifact.reference] = artifact
        return artifact

    def is_expected(self, artifact: Artifact) -> bool:
        return artifact.reference in self._expected

    def open(self, reference: str, *kinds: str) -> Artifact:
        return self._expected.get(reference) or super().open(reference, *kinds)

    def check_files(self, artifact: Artifact, **options: Any) -> None:
        if not self.is_expected(artifact):
            super().check_files(artifact, **options)


DONE = "done"
CONTINUES = "continues"
NEW = "new"
CPU = "cpu"


class Task(NamedTuple):
    """A command to run, with validated settings."""

    name: str
    command: str
    config: StageConfig
    references: Mapping[str, Reference]


@dataclass(frozen=True)
class Estimate:
    """The estimate of a task; unknown values are None."""

    name: str
    command: str
    state: str
    reference: str | None
    """Reference of its artifact; None as long as an input is not made."""
    why: str = ""
    """Reason why it is not done yet."""
    seconds: float | None = None
    """Time that the same settings took before in this store, with another seed."""
    disk: int | None = None
    scratch: int | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    """Minimum bytes of memory, by device: `cpu`, and the name of a GPU."""
    advice: str = ""
    """Advice in brackets: settings that need less; empty if there is none."""
    written: int = 0
    """Bytes of interrupted work that are on the disk already."""

    @property
    def missing(self) -> int:
        """Bytes that it still adds to the disk, permanently and while it works."""
        return max(0, (self.disk or 0) + (self.scratch or 0) - self.written)


def tasks_of(recipe: Recipe) -> list[Task]:
    """The stages of a recipe."""
    return [
        Task(name, stage.command, recipe.config(name), stage.all_references)
        for name, stage in recipe.stages.items()
    ]


def estimates(
    tasks: Sequence[Task], store: Store, execution: Execution, *, sizes: bool = True
) -> Iterator[Estimate]:
    """Estimate each task, in order; later tasks read its expected artifact.

    Args:
        sizes: whether needs and times are estimated, too, besides the state of each task and its
        reason.
    Raises: the errors of a task that do not depend on artifacts not made yet.
    """
    expected = ExpectedStore(store.root)
    artifacts: dict[str, Artifact] = {}
    new: set[str] = set()
    names = {task.name for task in tasks}
    for task in tasks:
        reads = [
            value for value in task.references.values() if isinstance(value, str) and value in names
        ]
        reads_new = [name for name in reads if name in new]
        why = f"reads {', '.join(reads_new)}" if reads_new else ""
        try:
            if any(name not in artifacts for name in reads):
                raise LookupError(why)
            estimate, artifact = _estimate(task, artifacts, expected, execution, why, sizes)
        except (MemlmError, LookupError, OSError):  # it needs an artifact that is not made yet
            if not reads_new:
                raise
            estimate = Estimate(task.name, task.command, NEW, None, why)
            artifact = None
        if artifact is not None:
            artifacts[task.name] = artifact
        if estimate.state != DONE:
            new.add(task.name)
        yield estimate


def _estimate(
    task: Task,
    artifacts: Mapping[str, Artifact],
    store: ExpectedStore,
    execution: Execution,
    why: str,
    sizes: bool,
) -> tuple[Estimate, Artifact | None]:
    """The estimate of a task, and its artifact, which is an expected one if it is not made.

    Args:
        why: the new tasks that it reads, in words; empty if there are none.
    """
    stage = stage_of(task.command)
    work = plan(stage, task.config, bound(task.references, artifacts), store, execution)
    if store.has(work.kind, work.id):
        artifact = store.open(work.reference)
        done = Estimate(
            task.name,
            task.command,
            DONE,
            work.reference,
            disk=artifact.manifest.bytes,
            scratch=0,
        )
        return done, artifact

    draft = store.draft_folder(work.kind, work.id)
    reads_expected = any(map(store.is_expected, work.inputs.artifacts.values()))
    reference = None if reads_expected else work.reference
    why = why or why_new(work, store)
    if not sizes:
        return Estimate(task.name, task.command, NEW, reference, why), None

    # Arithmetic on a model loads torch, so not for tasks that are done.
    needs = needs_of(task.command, work.config, work.inputs)
    device = execution.device_of(stage.Config)
    memory = {CPU: needs.memory}
    memory[device] = memory.get(device, 0) + needs.device_memory
    estimate = Estimate(
        name=task.name,
        command=task.command,
        state=CONTINUES if draft.is_dir() else NEW,
        reference=reference,
        why=why,
        seconds=earlier_seconds(work, device, store),
        disk=needs.disk,
        scratch=needs.scratch,
        memory={name: count for name, count in memory.items() if count},
        advice=f" ({needs.advice})" if needs.advice else "",
        written=folder_bytes(draft),
    )
    return estimate, store.expect(work, needs.metrics) if needs.metrics else None


TEXTS = {*SPLITS, "source"}
"""Roles of files of text; `source` is cut into splits."""


def why_new(work: ResolvedWork[Any], store: Store) -> str:
    """Reason why a piece of work with existing inputs is not done."""
    if store.draft_folder(work.kind, work.id).is_dir():
        return "interrupted: continues"
    alike = list(reversed(store.artifacts(work.kind)))
    # The latest artifact of the same text first: its difference is the most informative.
    alike.sort(key=lambda artifact: bool(_other_files(artifact, work)))
    return next(filter(None, (_difference(a, work) for a in alike)), "not made yet")


def _other_files(artifact: Artifact, work: ResolvedWork[Any]) -> set[str]:
    """The roles (`train`, `source`, `tokenizer`) whose files differ."""
    before = {tuple(file) for file in artifact.manifest.outside_files}
    now = set(map(tuple, work.files))
    return {file[0].partition(".")[0] for file in before ^ now}


def _difference(artifact: Artifact, work: ResolvedWork[Any]) -> str | None:
    """Describe the only difference between a piece of work and a finished one; None if there are
    several.
    """
    other = _other_files(artifact, work)
    if other & TEXTS:
        return "not made of this text yet"
    if other:
        return f"another {'/'.join(sorted(other))} than that of {artifact.reference}"
    inputs = [
        f"{role} changed: {artifact.manifest.inputs[role].id} -> {record.id}"
        for role, record in work.records.items()
        if role in artifact.manifest.inputs and artifact.manifest.inputs[role].id != record.id
    ]
    recorded = dict(leaves(artifact.config))
    settings = [
        f"{name}: {recorded.get(name)} -> {value}"
        for name, value in leaves(work.config.stored())
        if recorded.get(name) != value
    ]
    if inputs and not settings:
        return ", ".join(inputs)
    if settings and not inputs:
        return "settings changed: " + ", ".join(settings[:3]) + (", …" if len(settings) > 3 else "")
    return None


SEED = "seed"


def earlier_seconds(work: ResolvedWork[Any], device: str, store: Store) -> float | None:
    """Time that the same settings took in this store on the same kind of device; None if they never
    ran.

    Settings and texts are the same, those of all artifacts that were read included; seeds differ.
    """
    settings = _without_seed(work.config.stored())
    origins: dict[str, Any] | None = None
    for artifact in reversed(store.artifacts(work.kind)):
        manifest = artifact.manifest
        if manifest.stage != work.stage.name or manifest.producer.get("device") != device:
            continue
        if _without_seed(manifest.config) != settings or manifest.outside_files != work.files:
            continue
        try:
            # Most stores hold few candidates, so lineage is read only once there is one.
            origins = origins or _origins(work.inputs.artifacts)
            if _origins(_inputs_of(artifact)) == origins:
                return manifest.seconds
        except ArtifactError:  # an input was removed, so its settings are not known
            continue
    return None


def _origins(artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    """Stages, settings without seeds and texts that artifacts come from, by role, recursively."""
    origins = {}
    for role, artifact in artifacts.items():
        manifest = artifact.manifest
        origins[role] = (
            manifest.stage,
            _without_seed(manifest.config),
            manifest.outside_files,
            _origins(_inputs_of(artifact)),
        )
    return origins


def _inputs_of(artifact: Artifact) -> dict[str, Artifact]:
    """Inputs by role, whose files are not checked. Raises: ArtifactError if one is gone."""
    records = artifact.manifest.inputs.items()
    return {role: artifact.store.open(record.reference) for role, record in records}


def _without_seed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != SEED}


USABLE_PERCENT = 98
"""Share of a disk that plans may fill."""


@dataclass(frozen=True)
class Fit:
    """Needs of all tasks together, and the machine's disk and memory."""

    stays: int
    at_once: int
    """Peak bytes on the disk of everything not made yet."""
    complete: bool
    """Whether all tasks are known and counted."""
    free: int
    memory: Mapping[str, int]
    """Available bytes of memory, by device."""
    problems: tuple[str, ...]


def fits(forecasts: Sequence[Estimate], free: int, memory: Mapping[str, int]) -> Fit:
    """Compare the known needs with the machine.

    Args:
        free: free bytes of the disk.
        memory: bytes of memory of the used devices, by name.
    """
    stays = at_once = 0
    new = [estimate for estimate in forecasts if estimate.state != DONE]
    for estimate in new:
        # While a stage works, the artifacts of earlier stages are on the disk, too.
        at_once = max(at_once, stays + estimate.missing)
        stays += max(0, (estimate.disk or 0) - estimate.written)
    problems: list[str] = []
    if at_once > free * USABLE_PERCENT // 100:
        largest = max(new, key=lambda estimate: estimate.missing)
        problems.append(
            f"the disk has {size(free)} free, and {size(at_once)} are needed at once, most of it for "
            f"{largest.name}{largest.advice}"
        )
    for estimate in new:
        for device, needed in estimate.memory.items():
            if needed > memory.get(device, needed):
                needs = f"{estimate.name} takes at least {size(needed)} of memory"
                problems.append(f"{needs}, {device} has {size(memory[device])}{estimate.advice}")
    complete = all(estimate.disk is not None and estimate.scratch is not None for estimate in new)
    return Fit(stays, at_once, complete, free, memory, tuple(problems))
