"""A stage small enough to be seen through: squares of numbers, one shard after the other."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import InputFile, Inputs, Job, Shard, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.config import StageConfig


class SquaresConfig(StageConfig):
    length: int = 10
    rows: int = 3
    verbose: bool = False

    not_identity = frozenset({"verbose"})


class Squares(ShardedStage[SquaresConfig, ArrayLayout, ArrayLayout, Shard]):
    kind: ClassVar[str] = "tokens"
    Config = SquaresConfig

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.fail_at, self.error = fail_at, error
        self.computed: list[str] = []

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs(files=tuple(InputFile("source", p, d) for p, d in references.get("files", ())))

    def plan(self, job: Job[SquaresConfig]) -> ArrayLayout:
        return ArrayLayout("out.zarr/part/squares", (job.config.length,), "int64", job.config.rows)

    def arrays(self, job: Job[SquaresConfig], plan: ArrayLayout) -> list[ArrayLayout]:
        return [plan]

    def shards(self, job: ShardJob[SquaresConfig], plan: ArrayLayout) -> list[Shard]:
        return [Shard(f"{i:03}") for i in range(plan.shards)]

    def open(self, job: ShardJob[SquaresConfig], plan: ArrayLayout) -> ArrayLayout:
        return plan

    def run_shard(self, job: ShardJob[SquaresConfig], work: ArrayLayout, shard: Shard) -> ShardOutput:
        number = int(shard.key)
        if number == self.fail_at and self.error is not None:
            raise self.error
        self.computed.append(shard.key)
        rows = work.rows(number)
        block = np.arange(rows.start, rows.stop, dtype=np.int64) ** 2
        output = ShardOutput(job.folder, {"sum": int(block.sum())})
        output.write(work, number, block)
        return output

    def finish(self, job: Job[SquaresConfig], plan: ArrayLayout) -> dict[str, Any]:
        job.draft.add("note.txt").write_text("done\n")
        return {"sum": sum(job.draft.record(shard.key)["sum"] for shard in self.shards(job, plan))}


class Cubes(ShardedStage[SquaresConfig, ArrayLayout, ArrayLayout, Shard]):
    """A stage that reads squares, so that lineage can be tested."""

    kind: ClassVar[str] = "model"
    Config = SquaresConfig

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({"squares": store.get(references["source"], "tokens")})

    def plan(self, job: Job[SquaresConfig]) -> ArrayLayout:
        return ArrayLayout("cubes.zarr/cubes", (job.config.length,), "int64", job.config.rows)

    def arrays(self, job: Job[SquaresConfig], plan: ArrayLayout) -> list[ArrayLayout]:
        return [plan]

    def shards(self, job: ShardJob[SquaresConfig], plan: ArrayLayout) -> list[Shard]:
        return [Shard(f"{i:03}") for i in range(plan.shards)]

    def open(self, job: ShardJob[SquaresConfig], plan: ArrayLayout) -> ArrayLayout:
        return plan

    def run_shard(self, job: ShardJob[SquaresConfig], work: ArrayLayout, shard: Shard) -> ShardOutput:
        number = int(shard.key)
        squares = job.inputs["squares"].zarr("out.zarr")["part/squares"]
        rows = work.rows(number)
        output = ShardOutput(job.folder)
        output.write(work, number, np.asarray(squares[rows]) * np.arange(rows.start, rows.stop))
        return output

    def finish(self, job: Job[SquaresConfig], plan: ArrayLayout) -> dict[str, Any]:
        return {}
