"""Stages small enough to be seen through: squares of numbers, one shard after the other, and sums
in chains.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.checksums import manifest_checksum, manifest_digest
from stages.artifacts.kinds import STAGES
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import InputFile, Inputs, Job, Shard, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.config import StageConfig


def restate(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the manifest of a folder says, and its digest with it: whole, but of something
    else.
    """
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    content["digest"] = manifest_digest(content)
    content["checksum"] = manifest_checksum(content)
    path.write_text(json.dumps(content))


class SquaresConfig(StageConfig):
    length: int = 10
    rows: int = 3
    verbose: bool = False

    not_identity = frozenset({"verbose"})


class OneArray(ShardedStage[SquaresConfig, ShardPlan[Shard], ArrayLayout, Shard]):
    """A stage that makes one array, a shard of rows after the other."""

    array: ClassVar[str]

    def plan(self, job: Job[SquaresConfig]) -> ShardPlan[Shard]:
        array = ArrayLayout(self.array, (job.config.length,), "int64", job.config.rows)
        return ShardPlan([Shard(f"{i:03}") for i in range(array.shards)], arrays=[array])

    def open(self, job: ShardJob[SquaresConfig], plan: ShardPlan[Shard]) -> ArrayLayout:
        return plan.arrays[0]


class Squares(OneArray):
    name: ClassVar[str] = "squares"
    kind: ClassVar[str] = "tokens"
    Config = SquaresConfig
    array = "out.zarr/part/squares"

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.fail_at, self.error = fail_at, error
        self.computed: list[str] = []

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs(
            files=tuple(InputFile("source", p, d) for p, d in references.get("files", ()))
        )

    def run_shard(
        self, job: ShardJob[SquaresConfig], work: ArrayLayout, shard: Shard
    ) -> ShardOutput:
        number = int(shard.key)
        if number == self.fail_at and self.error is not None:
            raise self.error
        self.computed.append(shard.key)
        rows = work.rows(number)
        block = np.arange(rows.start, rows.stop, dtype=np.int64) ** 2
        output = ShardOutput(job.folder, {"sum": int(block.sum())})
        output.write(work, number, block)
        return output

    def finish(self, job: Job[SquaresConfig], plan: ShardPlan[Shard]) -> dict[str, Any]:
        job.draft.add("note.txt").write_text("done\n")
        return {"sum": sum(job.draft.record(shard.key)["sum"] for shard in plan.shards)}


class Cubes(OneArray):
    """A stage that reads squares, so that lineage can be tested."""

    name: ClassVar[str] = "cubes"
    kind: ClassVar[str] = "model"
    Config = SquaresConfig
    array = "cubes.zarr/cubes"

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({"squares": store.get(references["source"], "tokens")})

    def run_shard(
        self, job: ShardJob[SquaresConfig], work: ArrayLayout, shard: Shard
    ) -> ShardOutput:
        number = int(shard.key)
        squares = job.inputs["squares"].zarr("out.zarr")["part/squares"]
        rows = work.rows(number)
        output = ShardOutput(job.folder)
        output.write(work, number, np.asarray(squares[rows]) * np.arange(rows.start, rows.stop))
        return output

    def finish(self, job: Job[SquaresConfig], plan: ShardPlan[Shard]) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Step(Shard):
    """A number to add to the sum of its chain, or, last, the sum of all sums."""

    number: int | None = None


class Sums(ShardedStage[SquaresConfig, ShardPlan[Step], dict[str, int], Step]):
    """Running sums of even and of odd numbers, two chains; then, in a phase of its own, the sum of
    all.

    Every shard leaves a file `KEY-PROCESS` in the folder `trace`. Process `closed_to` may not open.
    """

    name: ClassVar[str] = "sums"
    kind: ClassVar[str] = "tokens"
    Config = SquaresConfig

    def __init__(
        self,
        trace: Path,
        fail_at: str | None = None,
        error: BaseException | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.trace, self.fail_at, self.error, self.seconds = trace, fail_at, error, seconds
        self.closed_to: int | None = None

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs()

    def plan(self, job: Job[SquaresConfig]) -> ShardPlan[Step]:
        numbers = range(job.config.length)
        adding = (
            Step(f"add-{number:03}", number, chain=("even", "odd")[number % 2])
            for number in numbers
        )
        return ShardPlan([*adding, Step("all", phase="all")])

    def open(self, job: ShardJob[SquaresConfig], plan: ShardPlan[Step]) -> dict[str, int]:
        assert os.getpid() != self.closed_to
        return {"numbers": job.config.length}

    def run_shard(
        self, job: ShardJob[SquaresConfig], work: dict[str, int], shard: Step
    ) -> ShardOutput:
        time.sleep(self.seconds)
        if shard.key == self.fail_at and self.error is not None:
            raise self.error
        (self.trace / f"{shard.key}-{os.getpid()}").touch()
        output = ShardOutput(job.folder)
        if shard.number is None:
            last = [f"add-{number:03}" for number in range(work["numbers"])[-2:]]
            output.record["sum"] = sum(job.record(key)["sum"] for key in last)
        else:
            before = f"sums/{shard.number - 2:03}"
            total = shard.number + (
                int((job.folder / before).read_text()) if shard.number > 1 else 0
            )
            output.record["sum"] = total
        file = "sum" if shard.number is None else f"sums/{shard.number:03}"
        output.add(file).write_text(str(output.record["sum"]))
        return output

    def finish(self, job: Job[SquaresConfig], plan: ShardPlan[Step]) -> dict[str, Any]:
        return {"sum": job.draft.record("all")["sum"]}


STAGES.targets |= {one.name: f"{__name__}:{one.__name__}" for one in (Squares, Cubes, Sums)}
