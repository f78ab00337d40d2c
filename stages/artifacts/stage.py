"""A stage: a pure function of settings and inputs to one artifact, cut into units that can be resumed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import PROGRESS, Draft
from stages.artifacts.output import ShardOutput, read_record
from stages.artifacts.schema import Schema
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.registry import load
from stages.reporting import Reporter, Silent

C = TypeVar("C", bound=StageConfig)
P = TypeVar("P", bound="ShardPlan[Any]")
W = TypeVar("W")
S = TypeVar("S", bound="Shard")


@dataclass(frozen=True)
class Execution:
    """How work is done: nothing of it is part of an identity, but `precision: auto` is resolved by the device."""

    device: str = "auto"
    """auto, cpu or cuda."""
    checkpoint_seconds: float = 60.0
    """How often training saves its progress; other stages save after every shard."""
    wait: bool = True
    """Whether to wait for another process that makes the same artifact."""
    reporter: Reporter = field(default_factory=Silent)
    workers: int = 1
    """Processes that compute shards; 1: this one, on this machine."""
    cluster: str | None = None
    """The executor of the machines on which they run; None: this one."""
    command: tuple[str, ...] = ()
    """The words of the command, for the manifest; none: it is made from Python."""

    @property
    def executor(self) -> str:
        """Where shards are computed."""
        return self.cluster or ("local" if self.workers == 1 else "processes")

    def device_of(self, config: type[StageConfig]) -> str:
        """Name of the device on which a stage with such settings computes: the CPU, unless models run."""
        if not config.runs_models and "precision" not in config.model_fields:
            return "cpu"
        return str(load("stages.models.devices:device_name")(self.device))


@dataclass(frozen=True)
class InputFile:
    """A file from outside the store; the id covers its role, place in the order and digest, never its path."""

    role: str
    path: str
    digest: str


@dataclass(frozen=True)
class Inputs:
    """Inputs of a stage: artifacts by role, and files."""

    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    files: tuple[InputFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Files that are not read, in sentences for the user."""

    def __getitem__(self, role: str) -> Artifact:
        return self.artifacts[role]

    def __contains__(self, role: object) -> bool:
        return role in self.artifacts


@dataclass(frozen=True)
class ShardJob(Generic[C]):
    """The run that shards belong to, wherever they are computed; it can be pickled."""

    config: C
    inputs: Inputs
    folder: Path
    """The draft's."""
    execution: Execution

    def record(self, key: str) -> dict[str, Any]:
        """Note about a shard of an earlier phase."""
        return read_record(self.folder / PROGRESS, key)


@dataclass(frozen=True)
class Job(ShardJob[C], Generic[C]):
    """One run of a stage, in the process that holds the lock of what is made."""

    draft: Draft

    @property
    def reporter(self) -> Reporter:
        return self.execution.reporter

    def for_shards(self) -> ShardJob[C]:
        """The same for those who compute shards; they commit nothing, and tell nothing."""
        return ShardJob(self.config, self.inputs, self.folder, replace(self.execution, reporter=Silent()))


class Stage(ABC, Generic[C]):
    """One verb of the pipeline. It holds no state and knows nothing of locks, ids or renames."""

    name: ClassVar[str]
    """Its name in `STAGES`, and its command's."""
    kind: ClassVar[str]
    """The kind of artifact that it makes."""
    Config: ClassVar[type[StageConfig]]
    schema: ClassVar[Schema] = Schema()
    """Form of what it writes."""

    @abstractmethod
    def inputs(self, config: C, references: Mapping[str, Any], store: Store) -> Inputs:
        """Find what the stage reads: cheap, and complete before any work starts.

        Args:
            config: the settings, not resolved yet.
            references: `source`, the command's argument, and one for each option that names an artifact or files.
            store: where references point to.
        Raises: ArtifactError, DataError or UsageError for what is missing or does not fit.
        """

    def resolve(self, config: C, inputs: Inputs, execution: Execution) -> C:
        """Replace every `auto` by what it stands for here, so that the id names exactly one piece of work."""
        return config

    def parts(self, config: C, inputs: Inputs) -> set[str]:
        """Names of parts that take part though no setting names them; the id covers those from outside, too.

        Args:
            config: the resolved settings.
        """
        return set()


class SerialStage(Stage[C], Generic[C]):
    """A stage whose work is a sequence, as training is: one process does it in one call, and commits as it goes."""

    @abstractmethod
    def run(self, job: Job[C]) -> dict[str, Any]:
        """Do the work in `job.draft`, going on from what is committed there; returns the metrics."""

    def follow(self, config: C, inputs: Inputs, execution: Execution) -> bool:
        """Where several processes make one artifact together: help the first one, and write nothing.

        Returns: whether this process is a helper, whose help is now done; by default there are none.
        """
        return False


@dataclass(frozen=True)
class Shard:
    """One piece of a stage's work."""

    key: str
    """Its name in the progress log, the same in every run."""
    phase: str = field(default="", kw_only=True)
    """Shards of a phase, which are next to each other, begin when all of the phase before are committed."""
    title: str | None = field(default=None, kw_only=True)
    """Message before its phase, for those who wait; the same for all of the phase."""
    chain: str | None = field(default=None, kw_only=True)
    """Shards of a phase with the same chain resume from each other: one worker computes them, in order.

    None: the shard stands alone.
    """


@dataclass(frozen=True)
class ShardPlan(Generic[S]):
    """How the work of a stage is cut; fixed by settings and inputs alone. It can be pickled."""

    shards: Sequence[S]
    """All the work, in order."""
    arrays: Sequence[ArrayLayout] = field(default=(), kw_only=True)
    """The arrays that shards write; made before the first one runs."""
    scratch_bytes: int = field(default=0, kw_only=True)
    """Size of all other files that will be there at once, where it is known beforehand."""

    @property
    def bytes(self) -> int:
        """Size of all files that will be there at once, as far as it is known."""
        return self.scratch_bytes + sum(layout.stored_bytes for layout in self.arrays)


class ShardedStage(Stage[C], Generic[C, P, W, S]):
    """A stage whose work is a list of shards, each computed, written whole and committed on its own.

    Shards are computed where an executor decides, and committed by the process that holds the lock. That process
    plans and finishes, and needs no model; models are opened where shards are computed.
    """

    @abstractmethod
    def plan(self, job: Job[C]) -> P:
        """Cut the work into shards, without models.

        What only one process can do before there are shards is done and committed here.
        """

    @abstractmethod
    def open(self, job: ShardJob[C], plan: P) -> W:
        """Open what all shards share: inputs, the model. Once in each process that computes shards."""

    @abstractmethod
    def run_shard(self, job: ShardJob[C], work: W, shard: S) -> ShardOutput:
        """Compute a shard; its files and arrays are its own, so that shards may be computed at the same time."""

    @abstractmethod
    def finish(self, job: Job[C], plan: P) -> dict[str, Any]:
        """Put together what the shards left, once all are committed; returns the metrics."""
