"""What work costs before it starts: bytes by arithmetic, time by what the store says of the same work done before."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pipelines.calibration import Calibration
from pipelines.catalogue import stage_of
from pipelines.expected import ExpectedStore
from pipelines.plan import bound
from pipelines.rates import Rate, find, keep
from pipelines.recipe import Recipe, Reference
from stages.artifacts.artifact import Artifact
from stages.artifacts.cost import Effort
from stages.artifacts.garbage import folder_bytes
from stages.artifacts.make import plan
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import MemlmError
from stages.numbers import size

DONE, CONTINUES, NEW = "done", "continues", "new"
RANGE, FAR_RANGE, FAR = (0.7, 1.5), (0.4, 2.5), 100
"""Of times, as factors of what is expected; where a hundred times as much work, or a hundredth, was measured."""
SHORT_RANGE, SHORT, MUCH_MORE = (0.2, 1.2), 20.0, 3.0
"""Of times where all that was measured took fewer seconds, for a third of the work or less: programs, models and first
steps that start are a large part of it, and not of what is expected."""
CPU = "cpu"
GPU_FACTOR = 1.5
"""Between what is foretold of a GPU's memory and what is taken, at the most."""


class Task(NamedTuple):
    """A command that is to be run, with validated settings."""

    name: str
    command: str
    config: StageConfig
    references: Mapping[str, Reference]
    seconds: float | None = None
    """That it takes as its recipe says."""

    @property
    def foretold(self) -> tuple[float, float] | None:
        """The least and the most that it takes as its recipe says."""
        return None if self.seconds is None else (RANGE[0] * self.seconds, RANGE[1] * self.seconds)


@dataclass(frozen=True)
class Estimate:
    """What a task costs; None is what is not known."""

    name: str
    command: str
    state: str
    reference: str | None
    """None as long as it depends on something that is not made."""
    effort: Effort | None = None
    seconds: tuple[float, float] | None = None
    measured: int = 0
    """Artifacts of this store that the time follows from."""
    short: bool = False
    """Whether these took seconds, mostly to start, and the time is rather the least that is said."""
    calibrated: bool = False
    """Whether the time follows from a part of the work that was done to measure it."""
    stand_ins: bool = False
    """Whether that read a part of the text, or made-up numbers, in place of what is not made yet."""
    kept: str = ""
    """When and on what a part of such work was measured before, if the time follows from that."""
    foretold: bool = False
    """Whether the time is what the recipe says."""
    disk: int | None = None
    like_others: bool = False
    """Whether `disk` is what others of the kind took, and not arithmetic."""
    scratch: int | None = None
    memory: int | None = None
    """Of the machine, at the least."""
    device: str = "cpu"
    """What computes."""
    gpu: int | None = None
    """Bytes of a GPU's memory, about, where one computes."""
    gpu_least: int | None = None
    """Without which it cannot be made."""
    approximate: bool = False
    remedy: str = ""
    gpu_remedy: str = ""
    written: int = 0
    """Bytes that work which continues has on the disk already."""

    @property
    def missing(self) -> int:
        """Bytes that it still adds to the disk, for good and while it works."""
        return max(0, (self.disk or 0) + (self.scratch or 0) - self.written)


class Run(NamedTuple):
    """Work of the same kind that was done before."""

    artifact: Artifact
    effort: Effort
    seconds: float
    fixed: float
    """Of these, what more of the work would not have added to."""

    @property
    def working(self) -> float:
        return self.seconds - self.fixed


def tasks_of(recipe: Recipe) -> list[Task]:
    """The stages of a recipe."""
    return [
        Task(name, stage.command, recipe.config(name), stage.all_references, stage.seconds)
        for name, stage in recipe.stages.items()
    ]


def estimates(
    tasks: Sequence[Task], store: Store, execution: Execution, measuring: Callable[[str], None] | None = None
) -> Iterator[Estimate]:
    """What each task costs, in order; what a task makes is expected by those after it.

    Args:
        measuring: a part of work whose time the store does not tell is done to measure it, and this is called with
            its name before; what was measured is kept in the store. None: nothing is measured.
    Raises: what is wrong with a task as far as that does not depend on what is not made yet.
    """
    with TemporaryDirectory(prefix="memlm-") as folder:
        measure = None if measuring is None else Calibration(store.root, Path(folder), execution, measuring)
        yield from _estimates(tasks, store, execution, measure)


def _estimates(
    tasks: Sequence[Task], store: Store, execution: Execution, calibration: Calibration | None
) -> Iterator[Estimate]:
    expected = ExpectedStore(store.root)
    made: dict[str, Artifact] = {}
    done = [artifact for artifact in store.artifacts() if artifact.manifest.seconds > 0]
    for task in tasks:
        waits = [value for value in task.references.values() if isinstance(value, str)]
        unknown = [name for name in waits if name in {t.name for t in tasks} and name not in made]
        if unknown:
            yield _unknown(task)
            continue
        try:
            estimate, artifact = _estimate(task, made, expected, done, execution, calibration)
        except (MemlmError, LookupError):  # where it asks what only an artifact that is there can tell
            if any(name in made and expected.is_expected(made[name]) for name in waits):
                yield _unknown(task)
                continue
            raise
        made |= {} if artifact is None else {task.name: artifact}
        yield estimate


def _unknown(task: Task) -> Estimate:
    """Of a task that reads what is not made and cannot be foretold either."""
    return Estimate(task.name, task.command, NEW, None, seconds=task.foretold, foretold=task.foretold is not None)


def _estimate(
    task: Task,
    made: Mapping[str, Artifact],
    store: ExpectedStore,
    done: Sequence[Artifact],
    execution: Execution,
    calibration: Calibration | None,
) -> tuple[Estimate, Artifact | None]:
    stage = stage_of(task.command)
    work, config, inputs = plan(stage, task.config, bound(task.references, made), store, execution)
    if store.has(work.kind, work.id):
        artifact = store.open(work.reference)
        found = Estimate(task.name, task.command, DONE, work.reference, disk=artifact.manifest.bytes, scratch=0)
        return found, artifact
    stage.require(config, inputs, execution)
    approximate = any(artifact.reference in store.approximate for artifact in inputs.artifacts.values())
    cost = stage.cost(config, inputs)
    approximate = approximate or cost.approximate
    device = stage.device(execution)
    effort = stage.effort(config, inputs, cost.metrics) if cost.metrics else None
    kin = list(_kin(stage, effort, device, done)) if effort is not None else []
    seconds, short = (None, False) if effort is None else _seconds(effort, kin)
    taken, rate = None, None
    if calibration is not None and effort is not None and (seconds is None or short):
        taken = calibration.measured(task.name, stage, config, inputs, effort)
        if taken is not None:
            keep(store.root, task.command, device, effort, taken)
            seconds, short = (RANGE[0] * taken.seconds, RANGE[1] * taken.seconds), False
    if effort is not None and (seconds is None or short):
        rate = find(store.root, task.command, device, effort)
        rate = rate if rate is not None and effort.is_like(rate.effort) else None
        seconds = seconds if rate is None else _by_rate(effort, rate)
    foretold = seconds is None and task.foretold is not None
    alike = [run.artifact.manifest.bytes for run in kin]
    disk = round(median(alike)) if cost.disk is None and alike else cost.disk
    estimate = Estimate(
        name=task.name,
        command=task.command,
        state=CONTINUES if store.draft_folder(work.kind, work.id).is_dir() else NEW,
        reference=None if any(map(store.is_expected, inputs.artifacts.values())) else work.reference,
        effort=effort,
        seconds=seconds or task.foretold,
        measured=len(kin),
        short=short and rate is None,
        calibrated=taken is not None,
        stand_ins=taken is not None and taken.stand_ins,
        kept="" if rate is None else rate.told,
        foretold=foretold,
        disk=disk,
        like_others=cost.disk is None and disk is not None,
        scratch=cost.scratch,
        memory=cost.memory if device == CPU else cost.host,
        device=device,
        gpu=None if device == CPU else stage.gpu_memory(config, inputs),
        gpu_least=None if device == CPU else cost.memory,
        approximate=approximate,
        remedy=cost.remedy,
        gpu_remedy=cost.gpu_remedy,
        written=folder_bytes(store.draft_folder(work.kind, work.id)),
    )
    if not cost.metrics:
        return estimate, None
    artifact = store.expect(work, inputs, cost)
    if calibration is not None:
        calibration.stand_ins.announce(stage, config, inputs, artifact)
    if approximate:
        store.approximate.add(artifact.reference)
    return estimate, artifact


def _kin(stage: Stage[Any], effort: Effort, device: str, done: Sequence[Artifact]) -> "Iterator[Run]":
    """Artifacts that were made by the same kind of work on such a device."""
    for artifact in done:
        if artifact.kind != stage.kind or artifact.manifest.producer.get("device") != device:
            continue
        with suppress(MemlmError, ValueError, LookupError, TypeError):  # made by another command, or long ago
            other = _effort_of(stage, artifact)
            if other is not None and other.kin == effort.kin and other.amount > 0 and effort.is_like(other):
                seconds = artifact.manifest.seconds
                yield Run(artifact, other, seconds, min(seconds, stage.fixed_seconds(seconds, artifact.metrics)))


def _effort_of(stage: Stage[Any], artifact: Artifact) -> Effort | None:
    """Raises: ArtifactError if what it was made from is gone."""
    inputs = {role: artifact.store.open(record.reference) for role, record in artifact.manifest.inputs.items()}
    return stage.effort(stage.Config.model_validate(artifact.config), Inputs(inputs), artifact.metrics)


def _seconds(effort: Effort, kin: Sequence[Run]) -> tuple[tuple[float, float] | None, bool]:
    """The least and the most that is expected, by the median of what was measured; whether that was too short."""
    if not kin:
        return None, False
    telling = [run for run in kin if run.working >= SHORT or effort.amount <= MUCH_MORE * run.effort.amount]
    rate = median(run.working / run.effort.amount for run in telling or kin)
    expected = median(run.fixed for run in telling or kin) + rate * effort.amount
    near = any(1 / FAR <= effort.amount / run.effort.amount <= FAR for run in telling)
    least, most = RANGE if near else FAR_RANGE if telling else SHORT_RANGE
    return (least * expected, most * expected), not telling


def _by_rate(effort: Effort, rate: Rate) -> tuple[float, float]:
    """The least and the most that is expected, by what was measured before."""
    times = effort.amount / rate.amount
    least, most = RANGE if 1 / FAR <= times <= FAR else FAR_RANGE
    return least * times * rate.seconds, most * times * rate.seconds


@dataclass(frozen=True)
class Room:
    """What all tasks take together, and what there is."""

    stays: int
    at_once: int
    """Most bytes that are on the disk at once, of all that is not there yet."""
    complete: bool
    """Whether that is all, or there are tasks of which it is not known."""
    free: int
    memory: Mapping[str, int]
    """Bytes of memory by device."""
    problems: tuple[str, ...]


def room(found: Sequence[Estimate], free: int, memory: Mapping[str, int]) -> Room:
    """Whether what is known to be needed fits. Two parts in a hundred of the disk are left free.

    Args:
        free: bytes of the disk.
        memory: bytes of the devices that are used, by name.
    """
    stays = at_once = 0
    problems: list[str] = []
    new = [estimate for estimate in found if estimate.state != DONE]
    for estimate in new:
        at_once = max(at_once, stays + estimate.missing)
        stays += max(0, (estimate.disk or 0) - estimate.written)
    if at_once > usable(free):
        largest = max(new, key=lambda estimate: estimate.missing)
        problems.append(
            f"the disk has {size(free)} free, and {size(at_once)} are needed at once, most of it for "
            f"{largest.name}{_hint(largest.remedy)}"
        )
    for estimate in new:
        problems += _too_large(estimate, memory)
    complete = all(estimate.disk is not None and estimate.scratch is not None for estimate in new)
    return Room(stays, at_once, complete, free, memory, tuple(problems))


def _too_large(estimate: Estimate, memory: Mapping[str, int]) -> Iterator[str]:
    """What of the memory of a task does not fit."""
    limit, own = memory.get(estimate.device), memory.get(CPU)
    if estimate.memory is not None and own is not None and estimate.memory > own:
        what = f"{size(estimate.memory)} of memory at the least, and {CPU} has {size(own)}"
        yield f"{estimate.name} takes {what}{_hint(estimate.remedy)}"
    needed = max(estimate.gpu_least or 0, round((estimate.gpu or 0) / GPU_FACTOR))
    if estimate.device != CPU and limit is not None and needed > limit:
        what = f"{size(needed)} of a GPU's memory at the least, and {estimate.device} has {size(limit)}"
        yield f"{estimate.name} takes {what}{_hint(estimate.gpu_remedy or estimate.remedy)}"


def usable(free: int) -> int:
    """Bytes of a disk that plans may fill."""
    return free * 98 // 100


def _hint(remedy: str) -> str:
    return f" ({remedy})" if remedy else ""
