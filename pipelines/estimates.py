"""Estimates of commands, and whether they fit: disk by arithmetic, time by the same work done before in this store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pipelines.catalogue import forecast_of, stage_of
from pipelines.plan import bound
from pipelines.recipe import Recipe, Reference
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import FileEntry
from stages.artifacts.garbage import folder_bytes
from stages.artifacts.kinds import KINDS
from stages.artifacts.make import ResolvedWork, plan
from stages.artifacts.manifest import InputRecord, Manifest
from stages.artifacts.stage import Execution, Inputs
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import MemlmError
from stages.forecasts.forecast import Cost, Work
from stages.numbers import size


class ExpectedStore(Store):
    """A store, read only, and on top of it artifacts that are expected; their files are not there."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self._expected: dict[str, Artifact] = {}
        self.approximate: set[str] = set()
        """Those whose metrics follow from samples."""

    def expect(self, work: ResolvedWork, inputs: Inputs, cost: Cost) -> Artifact:
        """An artifact as its cost describes it."""
        manifest = Manifest(
            format_version=KINDS[work.kind].format_version,
            kind=work.kind,
            stage=work.stage,
            id=work.id,
            config=work.config.stored(),
            inputs=work.inputs,
            files={file: _entry(file, size, work, inputs, cost) for file, size in (cost.files or {}).items()},
            metrics=dict(cost.metrics),
            created="",
            seconds=0.0,
            producer={},
            outside_files=work.files,
        ).sealed()
        artifact = Artifact(self, self.folder(work.kind, work.id), manifest)
        self._expected[artifact.reference] = artifact
        if cost.approximate:
            self.approximate.add(artifact.reference)
        return artifact

    def is_expected(self, artifact: Artifact) -> bool:
        return artifact.reference in self._expected

    def open(self, reference: str) -> Artifact:
        return self._expected.get(reference) or super().open(reference)

    def find_input(self, artifact: Artifact, role: str, record: InputRecord) -> Artifact:
        return self._expected.get(record.reference) or super().find_input(artifact, role, record)

    def check_files(
        self, artifact: Artifact, *, every_byte: bool = False, read: Callable[[int], None] = lambda count: None
    ) -> None:
        if not self.is_expected(artifact):
            super().check_files(artifact, every_byte=every_byte, read=read)


def _entry(file: str, size: int, work: ResolvedWork, inputs: Inputs, cost: Cost) -> FileEntry:
    """The digest of a file that is copied is that of the other; of others it is only unlike all others."""
    role = cost.copies.get(file)
    digest: Any = f"{work.reference}/{file}" if role is None else inputs[role].manifest.files[file]["blake2b"]
    return {"bytes": size, "blake2b": digest}


DONE, CONTINUES, NEW = "done", "continues", "new"
RANGE, FAR_RANGE = (0.7, 1.5), (0.2, 2.5)
"""Factors of the expected time: where a comparable amount was done before, and where it was not.

Starting a program and loading a model do not grow with the work, so a small run says little of a large one.
"""
FAR = 3.0
"""Ratio of two amounts from which they are not comparable."""
CPU = "cpu"


class Task(NamedTuple):
    """A command that is to be run, with validated settings."""

    name: str
    command: str
    config: StageConfig
    references: Mapping[str, Reference]
    seconds: float | None = None
    """The time that its recipe names."""

    @property
    def recipe_seconds(self) -> tuple[float, float] | None:
        """The range of times that its recipe names."""
        return None if self.seconds is None else (RANGE[0] * self.seconds, RANGE[1] * self.seconds)


@dataclass(frozen=True)
class Estimate:
    """The estimate of a task; None is what is not known."""

    name: str
    command: str
    state: str
    reference: str | None
    """None as long as it depends on something that is not made."""
    work: Work | None = None
    seconds: tuple[float, float] | None = None
    runs: int = 0
    """Number of artifacts of this store that the time follows from."""
    by_recipe: bool = False
    """Whether the time is the recipe's."""
    disk: int | None = None
    like_others: bool = False
    """Whether `disk` is the median of comparable artifacts, and not arithmetic."""
    scratch: int | None = None
    memory: int | None = None
    """Minimum bytes of the machine's memory."""
    device: str = CPU
    gpu_memory: int | None = None
    """Minimum bytes of a GPU's memory, where one computes."""
    approximate: bool = False
    remedy: str = ""
    written: int = 0
    """Bytes on the disk already, of work that continues."""

    @property
    def missing(self) -> int:
        """Bytes that it still adds to the disk, for good and while it works."""
        return max(0, (self.disk or 0) + (self.scratch or 0) - self.written)


class Run(NamedTuple):
    """Comparable work that was done before."""

    work: Work
    seconds: float
    bytes: int


def tasks_of(recipe: Recipe) -> list[Task]:
    """The stages of a recipe."""
    return [
        Task(name, stage.command, recipe.config(name), stage.all_references, stage.seconds)
        for name, stage in recipe.stages.items()
    ]


def estimates(tasks: Sequence[Task], store: Store, execution: Execution) -> Iterator[Estimate]:
    """Estimate each task, in order; what a task makes is expected by those after it.

    Raises: what is wrong with a task as far as that does not depend on what is not made yet.
    """
    expected = ExpectedStore(store.root)
    made: dict[str, Artifact] = {}
    done = [artifact for artifact in store.artifacts() if artifact.manifest.seconds > 0]
    names = {task.name for task in tasks}
    for task in tasks:
        waits = [value for value in task.references.values() if isinstance(value, str)]
        if any(name in names and name not in made for name in waits):
            yield _unknown(task)
            continue
        try:
            estimate, artifact = _estimate(task, made, expected, done, execution)
        except (MemlmError, LookupError, OSError):  # it reads a file of an artifact that is not made yet
            if any(name in made and expected.is_expected(made[name]) for name in waits):
                yield _unknown(task)
                continue
            raise
        if artifact is not None:
            made[task.name] = artifact
        yield estimate


def _unknown(task: Task) -> Estimate:
    """A task that reads what is not made and cannot be estimated either."""
    seconds = task.recipe_seconds
    return Estimate(task.name, task.command, NEW, None, seconds=seconds, by_recipe=seconds is not None)


def _estimate(
    task: Task, made: Mapping[str, Artifact], store: ExpectedStore, done: Sequence[Artifact], execution: Execution
) -> tuple[Estimate, Artifact | None]:
    stage = stage_of(task.command)
    work, config, inputs = plan(stage, task.config, bound(task.references, made), store, execution)
    if store.has(work.kind, work.id):
        artifact = store.open(work.reference)
        found = Estimate(task.name, task.command, DONE, work.reference, disk=artifact.manifest.bytes, scratch=0)
        return found, artifact
    stage.require(config, inputs, execution)
    forecast = forecast_of(task.command)  # loads what arithmetic needs: not for what is done
    cost, device = forecast.cost(config, inputs), stage.device(execution)
    approximate = cost.approximate or any(a.reference in store.approximate for a in inputs.artifacts.values())
    amount = forecast.work(config, inputs, cost.metrics) if cost.metrics else None
    runs = [] if amount is None else list(_comparable(task.command, amount, device, done))
    disk = round(median(run.bytes for run in runs)) if cost.disk is None and runs else cost.disk
    runs = runs or (
        [] if amount is None else list(_comparable(task.command, amount, device, done, of_other_shapes=True))
    )
    seconds = _seconds(amount, runs) if amount is not None and runs else None
    needed = stage.memory(config, inputs)
    estimate = Estimate(
        name=task.name,
        command=task.command,
        state=CONTINUES if store.draft_folder(work.kind, work.id).is_dir() else NEW,
        reference=None if any(map(store.is_expected, inputs.artifacts.values())) else work.reference,
        work=amount,
        seconds=seconds or task.recipe_seconds,
        runs=len(runs),
        by_recipe=seconds is None and task.seconds is not None,
        disk=disk,
        like_others=cost.disk is None and disk is not None,
        scratch=cost.scratch,
        memory=needed if device == CPU else cost.host,
        device=device,
        gpu_memory=None if device == CPU else needed,
        approximate=approximate,
        remedy=cost.remedy,
        written=folder_bytes(store.draft_folder(work.kind, work.id)),
    )
    if not cost.metrics:
        return estimate, None
    artifact = store.expect(work, inputs, cost)
    if approximate:
        store.approximate.add(artifact.reference)
    return estimate, artifact


def _comparable(
    command: str, work: Work, device: str, done: Sequence[Artifact], *, of_other_shapes: bool = False
) -> Iterator[Run]:
    """Artifacts that the same kind of work made on such a device; or work of other shapes, by its weights alone."""
    stage, forecast = stage_of(command), forecast_of(command)
    for artifact in done:
        if artifact.kind != stage.kind or artifact.manifest.producer.get("device") != device:
            continue
        with suppress(MemlmError, ValueError, LookupError, TypeError):  # made by another command, or inputs are gone
            inputs = {role: artifact.store.open(record.reference) for role, record in artifact.manifest.inputs.items()}
            config = stage.Config.model_validate(artifact.config)
            other = forecast.work(config, Inputs(inputs), artifact.metrics)
            if other.amount > 0 and (work.weights * other.weights if of_other_shapes else work.is_like(other)):
                yield Run(other, artifact.manifest.seconds, artifact.manifest.bytes)


def _seconds(work: Work, runs: Sequence[Run]) -> tuple[float, float]:
    """The range of expected times, by the median rate of the runs nearest in amount.

    Runs of another shape say little: they are compared by their amount times their weights.

    >>> one = Run(Work(1000, "tokens", {}), 1000.0, 0)
    >>> _seconds(Work(2000, "tokens", {}), [one])
    (1400.0, 3000.0)
    >>> _seconds(Work(100_000, "tokens", {}), [one])
    (20000.0, 250000.0)
    """
    alike = all(work.is_like(run.work) for run in runs)
    near = [run for run in runs if alike and 1 / FAR <= work.amount / run.work.amount <= FAR]

    def size(work: Work) -> int:
        return work.amount if alike else work.amount * work.weights

    rate = median(run.seconds / size(run.work) for run in near or runs)
    low, high = RANGE if near else FAR_RANGE
    return low * rate * size(work), high * rate * size(work)


USABLE_PERCENT = 98
"""Share of a disk that plans may fill."""


@dataclass(frozen=True)
class Fit:
    """Needs of all tasks together, and the machine's disk and memory."""

    stays: int
    at_once: int
    """Peak bytes on the disk, of all that is not there yet."""
    complete: bool
    """Whether every task is counted, or some are not known."""
    free: int
    memory: Mapping[str, int]
    """Bytes of memory by device."""
    problems: tuple[str, ...]


def fits(found: Sequence[Estimate], free: int, memory: Mapping[str, int]) -> Fit:
    """Compare what is known to be needed with what there is.

    Args:
        free: bytes of the disk.
        memory: bytes of the devices that are used, by name.
    """
    stays = at_once = 0
    new = [estimate for estimate in found if estimate.state != DONE]
    for estimate in new:
        at_once = max(at_once, stays + estimate.missing)
        stays += max(0, (estimate.disk or 0) - estimate.written)
    problems: list[str] = []
    if at_once > free * USABLE_PERCENT // 100:
        largest = max(new, key=lambda estimate: estimate.missing)
        problems.append(
            f"the disk has {size(free)} free, and {size(at_once)} are needed at once, most of it for "
            f"{largest.name}{_hint(largest)}"
        )
    for estimate in new:
        problems += _too_large(estimate, memory)
    complete = all(estimate.disk is not None and estimate.scratch is not None for estimate in new)
    return Fit(stays, at_once, complete, free, memory, tuple(problems))


def _too_large(estimate: Estimate, memory: Mapping[str, int]) -> Iterator[str]:
    """Sentences about memory that does not suffice."""
    for device, needed in ((CPU, estimate.memory), (estimate.device, estimate.gpu_memory)):
        limit = memory.get(device)
        if needed is not None and limit is not None and needed > limit:
            needs = f"{estimate.name} takes at least {size(needed)} of memory"
            yield f"{needs}, {device} has {size(limit)}{_hint(estimate)}"


def _hint(estimate: Estimate) -> str:
    return f" ({estimate.remedy})" if estimate.remedy else ""
