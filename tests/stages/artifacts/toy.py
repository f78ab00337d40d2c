"""A stage small enough to be seen through: squares of numbers, one shard after the other."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from stages.artifacts.draft import DraftArray
from stages.artifacts.stage import InputFile, Inputs, Job, Shard, ShardedStage
from stages.artifacts.store import Store
from stages.config import StageConfig


class SquaresConfig(StageConfig):
    length: int = 10
    rows: int = 3
    verbose: bool = False

    not_identity = frozenset({"verbose"})


class Squares(ShardedStage[SquaresConfig, DraftArray, Shard]):
    kind: ClassVar[str] = "tokens"
    Config = SquaresConfig

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.fail_at, self.error = fail_at, error
        self.computed: list[str] = []

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs(files=tuple(InputFile("source", p, d) for p, d in references.get("files", ())))

    def open(self, job: Job[SquaresConfig]) -> DraftArray:
        return job.draft.array("out.zarr/part/squares", (job.config.length,), "int64", job.config.rows)

    def shards(self, job: Job[SquaresConfig], work: DraftArray) -> list[Shard]:
        return [Shard(f"{i:03}") for i in range(work.shards)]

    def run_shard(self, job: Job[SquaresConfig], work: DraftArray, shard: Shard) -> dict[str, Any]:
        number = int(shard.key)
        if number == self.fail_at and self.error is not None:
            raise self.error
        self.computed.append(shard.key)
        rows = work.rows(number)
        block = np.arange(rows.start, rows.stop, dtype=np.int64) ** 2
        work.write(number, block)
        return {"sum": int(block.sum())}

    def finish(self, job: Job[SquaresConfig], work: DraftArray) -> dict[str, Any]:
        job.draft.add("note.txt").write_text("done\n")
        return {"sum": sum(job.draft.record(f"{i:03}")["sum"] for i in range(work.shards))}

    def output_bytes(self, job: Job[SquaresConfig], work: DraftArray) -> int:
        return 8 * job.config.length


class Cubes(ShardedStage[SquaresConfig, DraftArray, Shard]):
    """A stage that reads squares, so that lineage can be tested."""

    kind: ClassVar[str] = "model"
    Config = SquaresConfig

    def inputs(self, config: SquaresConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({"squares": store.get(references["source"], "tokens")})

    def open(self, job: Job[SquaresConfig]) -> DraftArray:
        return job.draft.array("cubes.zarr/cubes", (job.config.length,), "int64", job.config.rows)

    def shards(self, job: Job[SquaresConfig], work: DraftArray) -> list[Shard]:
        return [Shard(f"{i:03}") for i in range(work.shards)]

    def run_shard(self, job: Job[SquaresConfig], work: DraftArray, shard: Shard) -> None:
        number = int(shard.key)
        squares = job.inputs["squares"].zarr("out.zarr")["part/squares"]
        rows = work.rows(number)
        work.write(number, np.asarray(squares[rows]) * np.arange(rows.start, rows.stop))

    def finish(self, job: Job[SquaresConfig], work: DraftArray) -> dict[str, Any]:
        return {}
