"""What a stage is: a pure function of settings and inputs to one artifact, cut into units that can be resumed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.numbers import size
from stages.reporting import Reporter, Silent

C = TypeVar("C", bound=StageConfig)
W = TypeVar("W")
S = TypeVar("S", bound="Shard")


@dataclass(frozen=True)
class Execution:
    """How work is done, never what: nothing of it is part of an identity."""

    device: str = "auto"
    """auto, cpu or cuda."""
    checkpoint_seconds: float = 60.0
    """How often training saves its progress; other stages save after every shard."""
    wait: bool = True
    """Whether to wait for another process that makes the same artifact."""
    reporter: Reporter = field(default_factory=Silent)


@dataclass(frozen=True)
class InputFile:
    """A file from outside the store; the id covers its role, place in the order and digest, never its path."""

    role: str
    path: str
    digest: str


@dataclass(frozen=True)
class Inputs:
    """What a stage reads: artifacts by role, and files."""

    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    files: tuple[InputFile, ...] = ()

    def __getitem__(self, role: str) -> Artifact:
        return self.artifacts[role]

    def __contains__(self, role: object) -> bool:
        return role in self.artifacts


@dataclass(frozen=True)
class Job(Generic[C]):
    """One run of a stage."""

    config: C
    inputs: Inputs
    draft: Draft
    execution: Execution

    @property
    def reporter(self) -> Reporter:
        return self.execution.reporter


class Stage(ABC, Generic[C]):
    """One verb of the pipeline. It holds no state and knows nothing of locks, ids or renames."""

    kind: ClassVar[str]
    """The kind of artifact that it makes."""
    Config: ClassVar[type[StageConfig]]

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

    def device(self, execution: Execution) -> str:
        """What `run` computes on, for the manifest; by default the CPU."""
        return "cpu"

    def follow(self, config: C, inputs: Inputs, execution: Execution) -> bool:
        """Where several processes make one artifact together: help the first one, and write nothing.

        Returns: whether this process is a helper, whose help is now done; by default there are none.
        """
        return False

    @abstractmethod
    def run(self, job: Job[C]) -> dict[str, Any]:
        """Do the work in `job.draft`, going on from what is committed there; returns the metrics."""


@dataclass(frozen=True)
class Shard:
    """One piece of a stage's work; its key is its name in the progress log, the same in every run."""

    key: str


class ShardedStage(Stage[C], Generic[C, W, S]):
    """A stage whose work is a list of shards, each computed, written whole and committed on its own.

    Writing a shard overlaps computing the next, so two shards at most are in memory.
    """

    unit: ClassVar[str] = "shards"
    """What the shards are called when progress is shown."""

    @abstractmethod
    def open(self, job: Job[C]) -> W:
        """Make what all shards share: open inputs, load the model, create the arrays."""

    @abstractmethod
    def shards(self, job: Job[C], work: W) -> Sequence[S]:
        """All the work, in order; fixed by settings and inputs alone."""

    @abstractmethod
    def run_shard(self, job: Job[C], work: W, shard: S) -> dict[str, Any] | None:
        """Compute a shard and hand its blocks and files to `job.draft`; what is returned is kept as its record."""

    @abstractmethod
    def finish(self, job: Job[C], work: W) -> dict[str, Any]:
        """Put together what the shards left, once all are committed; returns the metrics."""

    def output_bytes(self, job: Job[C], work: W) -> int:
        """Size of what will be written, where it is known beforehand."""
        return 0

    def run(self, job: Job[C]) -> dict[str, Any]:
        work = self.open(job)
        self._announce_size(job, work)
        shards = self.shards(job, work)
        waiting = [shard for shard in shards if not job.draft.done(shard.key)]
        if job.draft.resumed:
            job.reporter.info(f"resumed: {len(shards) - len(waiting)} of {len(shards)} {self.unit}")
        for number, shard in enumerate(waiting, start=len(shards) - len(waiting) + 1):
            record = self.run_shard(job, work, shard)
            job.draft.commit(shard.key, record)
            job.reporter.progress(number, len(shards), self.unit)
        job.draft.flush()
        return self.finish(job, work)

    def _announce_size(self, job: Job[C], work: W) -> None:
        expected = self.output_bytes(job, work)
        if expected:
            job.reporter.info(f"writing {size(expected)} to {job.draft.path.parent}")
            job.draft.expect(expected)
