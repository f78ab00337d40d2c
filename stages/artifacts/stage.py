"""A stage: a pure function from settings and inputs to one artifact, divided into units that can be
resumed.

A `Stage` is the contract: it finds inputs and resolves settings, so that an id names the work. A
`SerialWork` or `ShardedWork` does this work, and is imported only for an artifact that is not
there yet.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import PROGRESS, Draft
from stages.artifacts.kinds import STAGES
from stages.artifacts.output import ShardOutput, read_record
from stages.artifacts.references import draft_id, log_folder
from stages.artifacts.schema import Schema
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.registry import load
from stages.reporting import Reporter, Silent

C = TypeVar("C", bound=StageConfig)
P = TypeVar("P", bound="ShardPlan[Any]")
R = TypeVar("R")
S = TypeVar("S", bound="Shard")


@dataclass(frozen=True)
class Execution:
    """Settings of execution. They are not part of an identity, but the device resolves `precision:
    auto`.
    """

    device: str = "auto"
    """auto, cpu or cuda."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints of training; other stages commit every shard."""
    wait: bool = True
    """Whether to wait for another process that makes the same artifact."""
    reporter: Reporter = field(default_factory=Silent)
    workers: int = 1
    """Number of processes that compute shards; 1: only this process."""
    cluster: str | None = None
    """Name of the executor for a cluster; None: shards are computed on this machine."""
    command: tuple[str, ...] = ()
    """The words of the command, for the manifest; empty: it is made from Python."""

    @property
    def executor(self) -> str:
        """Name of the executor, as in `EXECUTORS`."""
        return self.cluster or ("local" if self.workers == 1 else "processes")

    def device_of(self, config: type[StageConfig]) -> str:
        """Name of the device on which a stage with this class of settings computes: the CPU, unless
        it runs models.
        """
        if not config.runs_models and "precision" not in config.model_fields:
            return "cpu"
        return str(load("stages.models.devices:device_name")(self.device))


@dataclass(frozen=True)
class InputFile:
    """A file from outside the store. The id covers its role, position and digest, but never its
    path.
    """

    role: str
    path: str
    digest: str


@dataclass(frozen=True)
class Inputs:
    """Inputs of a stage: artifacts by role, and files."""

    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    files: tuple[InputFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Messages about files that are not read."""

    def __getitem__(self, role: str) -> Artifact:
        return self.artifacts[role]

    def __contains__(self, role: object) -> bool:
        return role in self.artifacts


@dataclass(frozen=True)
class ShardJob(Generic[C]):
    """The run of a stage, as processes that compute shards need it; it can be pickled."""

    config: C
    inputs: Inputs
    folder: Path
    """Folder of the draft."""
    execution: Execution

    def record(self, key: str) -> dict[str, Any]:
        """The record of a shard of an earlier phase."""
        return read_record(self.folder / PROGRESS, key)


@dataclass(frozen=True)
class Job(ShardJob[C], Generic[C]):
    """One run of a stage, in the process that holds the artifact's lock."""

    draft: Draft

    @property
    def reporter(self) -> Reporter:
        return self.execution.reporter

    @property
    def logs(self) -> Path:
        """Folder for logs of this run, beside the artifacts: they are never published."""
        kind = self.folder.parent
        return log_folder(kind.parent, kind.name, draft_id(self.folder))

    def for_shards(self) -> ShardJob[C]:
        """The job for processes that compute shards; they commit nothing, and report nothing."""
        return ShardJob(
            self.config, self.inputs, self.folder, replace(self.execution, reporter=Silent())
        )


class Stage(ABC, Generic[C]):
    """The contract of a verb: what it reads, what it writes, and the settings that name its work.

    It holds no state, and does not deal with locks, ids or renames. Its module imports neither
    torch nor NumPy, since commands import it to find artifacts that are there already.
    """

    name: ClassVar[str]
    """Name of the stage in `STAGES`, and of its command."""
    kind: ClassVar[str]
    """The kind of artifact that it makes."""
    Config: ClassVar[type[StageConfig]]
    schema: ClassVar[Schema] = Schema()
    """Schema of the metrics and arrays that it writes."""

    @abstractmethod
    def inputs(self, config: C, references: Mapping[str, Any], store: Store) -> Inputs:
        """Find all inputs of the stage, before any work starts. This must be fast.

        Args:
            config: the settings, not resolved yet.
            references: `source`, the command's argument, and one for each option that names an
            artifact or files.
            store: the store of the references.
        Raises: ArtifactError, DataError or UsageError for inputs that are missing or do not fit.
        """

    def resolve(self, config: C, inputs: Inputs, execution: Execution) -> C:
        """Replace every `auto` by its value for these inputs, so that the id names exactly one
        piece of work.
        """
        return config

    def parts(self, config: C, inputs: Inputs) -> set[str]:
        """Names of parts that are used although no setting names them; the id covers the external
        ones, too.

        Args:
            config: the resolved settings.
        """
        return set()

    def recorded_command(self, words: Sequence[str], config: C) -> list[str]:
        """Words of the command as the manifest records them, by default as they were typed.

        Args:
            words: the words, with ids for names of artifacts.
            config: the resolved settings.
        """
        return list(words)

    def work(self, config: C) -> "SerialWork[C] | ShardedWork[C, Any, Any, Any]":
        """The work of the stage, which is imported now: the one in `STAGES`, by default.

        Args:
            config: the resolved settings.
        """
        work: SerialWork[C] | ShardedWork[C, Any, Any, Any] = STAGES.work(self.name)()
        return work


class Work(ABC, Generic[C]):
    """Work of a stage, which makes an artifact."""

    def follow(self, config: C, inputs: Inputs, execution: Execution) -> bool:
        """Help the first process, without writing, if several processes make one artifact together.

        Returns: whether this process is a helper, and has finished; by default it is none.
        """
        return False


class SerialWork(Work[C]):
    """Work that proceeds step by step, such as training: one process does it in one call, and
    commits as it proceeds.
    """

    @abstractmethod
    def run(self, job: Job[C]) -> dict[str, Any]:
        """Do the work in `job.draft`, resuming from committed units; returns the metrics."""


@dataclass(frozen=True)
class Shard:
    """One piece of a stage's work."""

    key: str
    """Name of the shard in the progress log, the same in every run."""
    phase: str = field(default="", kw_only=True)
    """Name of its phase. Shards of a phase are consecutive, and begin once the phase before is
    committed.
    """
    title: str | None = field(default=None, kw_only=True)
    """Message for the user before its phase, the same for all shards of the phase."""
    chain: str | None = field(default=None, kw_only=True)
    """Name of its chain. One worker computes the shards of a chain in order, since each continues
    the one before.

    None: the shard is independent.
    """

    @property
    def amount(self) -> int:
        """How much of the work it is, in `unit`; shards of a phase take time in proportion."""
        return 1

    @property
    def unit(self) -> str:
        """Name of what a user sees counted, in the plural."""
        return "shards"


@dataclass(frozen=True)
class ShardPlan(Generic[S]):
    """Division of a stage's work into shards, fixed by settings and inputs alone. It can be
    pickled.
    """

    shards: Sequence[S]
    """All shards, in order."""
    arrays: Sequence[ArrayLayout] = field(default=(), kw_only=True)
    """The arrays that shards write; they are made before the first shard runs."""
    scratch_bytes: int = field(default=0, kw_only=True)
    """Largest total size of all other files, if it is known beforehand."""

    @property
    def bytes(self) -> int:
        """Largest total size of all files, as far as it is known."""
        return self.scratch_bytes + sum(layout.stored_bytes for layout in self.arrays)


class ShardedWork(Work[C], Generic[C, P, R, S]):
    """Work that is a list of shards; each is computed, written completely and committed on its own.

    An executor decides where shards are computed. The process that holds the lock commits them. It
    also plans and finishes, without models. Only processes that compute shards open models.
    """

    @abstractmethod
    def plan(self, job: Job[C]) -> P:
        """Divide the work into shards, without models.

        Work that one process must do before the shards is done and committed here.
        """

    @abstractmethod
    def open(self, job: ShardJob[C], plan: P) -> R:
        """Open the resources that all shards share, such as inputs and a model, once in each
        process that computes shards.
        """

    @abstractmethod
    def run_shard(self, job: ShardJob[C], resources: R, shard: S) -> ShardOutput:
        """Compute a shard. Shards write separate files and blocks, so they can be computed at the
        same time.
        """

    @abstractmethod
    def finish(self, job: Job[C], plan: P) -> dict[str, Any]:
        """Combine the output of the shards, once all are committed; returns the metrics."""


class SerialStage(Stage[C], SerialWork[C], Generic[C]):
    """Contract and serial work in one class, for a stage so small that its module imports little."""

    def work(self, config: C) -> SerialWork[C]:
        return self


class ShardedStage(Stage[C], ShardedWork[C, P, R, S], Generic[C, P, R, S]):
    """Contract and sharded work in one class, for a stage so small that its module imports little."""

    def work(self, config: C) -> ShardedWork[C, P, R, S]:
        return self
