"""Estimates of commands, and whether they fit: disk by arithmetic, time from similar work done in
this store.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pipelines.catalogue import forecast_of, stage_of
from pipelines.recipe import Recipe, Reference, bound
from pipelines.settings import leaves
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import FileEntry
from stages.artifacts.garbage import folder_bytes
from stages.artifacts.make import ResolvedWork, plan
from stages.artifacts.stage import Execution, Inputs
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import MemlmError
from stages.forecasts import Cost, Work
from stages.numbers import size
from stages.text.tokens import SPLITS


class ExpectedStore(Store):
    """A read-only store, with expected artifacts on top of it; their files do not exist."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self._expected: dict[str, Artifact] = {}
        self.approximate: set[str] = set()
        """References of artifacts whose metrics follow from samples."""

    def expect(self, work: ResolvedWork[Any], cost: Cost) -> Artifact:
        """Add an expected artifact, described by its cost."""
        files: dict[str, FileEntry] = {}
        for file, count in (cost.files or {}).items():
            # A copied file has the digest of the original, others a unique one.
            digest: Any = f"{work.reference}/{file}"
            if file in cost.copies:
                digest = work.inputs[cost.copies[file]].manifest.files[file]["blake2b"]
            files[file] = {"bytes": count, "blake2b": digest}
        manifest = work.manifest(
            files=files, metrics=dict(cost.metrics), created="", seconds=0.0, producer={}
        )
        artifact = Artifact(self, self.folder(work.kind, work.id), manifest)
        self._expected[artifact.reference] = artifact
        if cost.approximate:
            self.approximate.add(artifact.reference)
        return artifact

    def is_expected(self, artifact: Artifact) -> bool:
        return artifact.reference in self._expected

    def open(self, reference: str, *kinds: str) -> Artifact:
        return self._expected.get(reference) or super().open(reference, *kinds)

    def check_files(self, artifact: Artifact, **options: Any) -> None:
        if not self.is_expected(artifact):
            super().check_files(artifact, **options)


DONE, CONTINUES, NEW = "done", "continues", "new"
RANGE, FAR_RANGE = (0.7, 1.5), (0.2, 2.5)
"""Factors of the expected time: with a comparable amount done before, and without.

Starting a program and loading a model do not grow with the work. So a small run predicts a large
one badly.
"""
FAR = 3.0
"""Ratio from which on two amounts are not comparable."""
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
    work: Work | None = None
    seconds: tuple[float, float] | None = None
    """Minimum and maximum expected time."""
    disk: int | None = None
    scratch: int | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    """Minimum bytes of memory, by device: `cpu`, and the name of a GPU."""
    approximate: bool = False
    remedy: str = ""
    """Advice in brackets: settings that take less; empty if there is none."""
    written: int = 0
    """Bytes of interrupted work that are on the disk already."""
    why: str = ""
    """Reason why it is not done yet, if only that was asked."""

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
        sizes: whether sizes and times are estimated, too, besides the state of each task and its
        reason.
    Raises: the errors of a task that do not depend on artifacts not made yet.
    """
    expected = ExpectedStore(store.root)
    made: dict[str, Artifact] = {}
    new: set[str] = set()
    names = {task.name for task in tasks}
    for task in tasks:
        reads = [
            value for value in task.references.values() if isinstance(value, str) and value in names
        ]
        why = f"reads {', '.join(name for name in reads if name in new)}"
        try:
            if any(name not in made for name in reads):
                raise LookupError(why)
            estimate, artifact = _estimate(task, made, expected, execution, sizes)
        except (MemlmError, LookupError, OSError):  # it needs an artifact that is not made yet
            if new.isdisjoint(reads):
                raise
            estimate, artifact = Estimate(task.name, task.command, NEW, None, why=why), None
        if artifact is not None:
            made[task.name] = artifact
        if estimate.state != DONE:
            new.add(task.name)
        yield estimate


def _estimate(
    task: Task,
    made: Mapping[str, Artifact],
    store: ExpectedStore,
    execution: Execution,
    sizes: bool,
) -> tuple[Estimate, Artifact | None]:
    stage = stage_of(task.command)
    work = plan(stage, task.config, bound(task.references, made), store, execution)
    config, inputs = work.config, work.inputs
    if store.has(work.kind, work.id):
        artifact = store.open(work.reference)
        found = Estimate(
            task.name, task.command, DONE, work.reference, disk=artifact.manifest.bytes, scratch=0
        )
        return found, artifact
    if not sizes:
        return Estimate(
            task.name, task.command, NEW, work.reference, why=why_new(work, store)
        ), None
    forecast = forecast_of(task.command)  # loads modules for arithmetic, so not for finished tasks
    cost, device = forecast.cost(config, inputs), execution.device_of(stage.Config)
    sampled = store.approximate & {artifact.reference for artifact in inputs.artifacts.values()}
    cost = replace(cost, approximate=cost.approximate or bool(sampled))
    amount = forecast.work(config, inputs, cost.metrics) if cost.metrics else None
    draft = store.draft_folder(work.kind, work.id)
    beside = 0 if device == CPU else cost.beside_a_gpu
    needed = {CPU: cost.host, device: None if cost.memory is None else cost.memory - beside}
    estimate = Estimate(
        name=task.name,
        command=task.command,
        state=CONTINUES if draft.is_dir() else NEW,
        reference=None
        if any(map(store.is_expected, inputs.artifacts.values()))
        else work.reference,
        work=amount,
        seconds=None
        if amount is None
        else expected_seconds(amount, _runs(task.command, amount, device, store)),
        disk=cost.disk,
        scratch=cost.scratch,
        memory={name: count for name, count in needed.items() if count is not None},
        approximate=cost.approximate,
        remedy=f" ({cost.remedy})" if cost.remedy else "",
        written=folder_bytes(draft),
    )
    return estimate, store.expect(work, cost) if cost.metrics else None


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
    different = {tuple(file) for file in artifact.manifest.outside_files} ^ {
        tuple(file) for file in work.files
    }
    return {file[0].partition(".")[0] for file in different}


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
    own = dict(leaves(artifact.config))
    settings = [
        f"{name}: {own.get(name)} -> {value}"
        for name, value in leaves(work.config.stored())
        if own.get(name) != value
    ]
    if inputs and not settings:
        return ", ".join(inputs)
    if settings and not inputs:
        return "settings changed: " + ", ".join(settings[:3]) + (", …" if len(settings) > 3 else "")
    return None


Run = tuple[int, float]
"""Amount and seconds of comparable finished work."""


def _runs(command: str, work: Work, device: str, store: Store) -> Iterator[Run]:
    """Amount and seconds of artifacts that the same kind of work made on this kind of device."""
    stage, forecast = stage_of(command), forecast_of(command)
    for artifact in store.artifacts(stage.kind):
        if (
            artifact.manifest.stage != stage.name
            or artifact.manifest.producer.get("device") != device
        ):
            continue
        # An artifact of another version may have settings that no longer exist.
        with suppress(
            MemlmError, ValueError, LookupError, TypeError
        ):  # inputs are gone, or a part is missing
            inputs = {
                role: store.open(record.reference)
                for role, record in artifact.manifest.inputs.items()
            }
            config = stage.Config.model_validate(artifact.config)
            other = forecast.work(config, Inputs(inputs), artifact.metrics)
            if other.amount > 0 and work.is_like(other):
                yield other.amount, artifact.manifest.seconds


def expected_seconds(work: Work, before: Iterable[Run]) -> tuple[float, float] | None:
    """The range of expected times, from the median rate of the runs nearest in amount; None without
    runs.

    >>> expected_seconds(Work(2000, "tokens", {}), [(1000, 1000.0)])
    (1400.0, 3000.0)
    >>> expected_seconds(Work(100_000, "tokens", {}), [(1000, 1000.0)])
    (20000.0, 250000.0)
    """
    runs = list(before)
    near = [(amount, seconds) for amount, seconds in runs if 1 / FAR <= work.amount / amount <= FAR]
    if not runs:
        return None
    rate = median(seconds / amount for amount, seconds in near or runs)
    low, high = RANGE if near else FAR_RANGE
    return low * rate * work.amount, high * rate * work.amount


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


def fits(found: Sequence[Estimate], free: int, memory: Mapping[str, int]) -> Fit:
    """Compare the known needs with the machine.

    Args:
        free: free bytes of the disk.
        memory: bytes of memory of the used devices, by name.
    """
    stays = at_once = 0
    new = [estimate for estimate in found if estimate.state != DONE]
    for estimate in new:
        # While a stage works, the artifacts of earlier stages are on the disk, too.
        at_once = max(at_once, stays + estimate.missing)
        stays += max(0, (estimate.disk or 0) - estimate.written)
    problems: list[str] = []
    if at_once > free * USABLE_PERCENT // 100:
        largest = max(new, key=lambda estimate: estimate.missing)
        problems.append(
            f"the disk has {size(free)} free, and {size(at_once)} are needed at once, most of it for "
            f"{largest.name}{largest.remedy}"
        )
    for estimate in new:
        for device, needed in estimate.memory.items():
            if needed > memory.get(device, needed):
                needs = f"{estimate.name} takes at least {size(needed)} of memory"
                problems.append(f"{needs}, {device} has {size(memory[device])}{estimate.remedy}")
    complete = all(estimate.disk is not None and estimate.scratch is not None for estimate in new)
    return Fit(stays, at_once, complete, free, memory, tuple(problems))
