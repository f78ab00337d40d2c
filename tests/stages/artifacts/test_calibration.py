"""Work is measured by shards that stand for others."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.artifacts import calibration
from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.cost import Effort
from stages.artifacts.make import make
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Shard, ShardJob
from stages.artifacts.store import Store
from tests.stages.artifacts.toy import Squares, SquaresConfig

EFFORT = Effort(1, "rows", {})


class Timed(Squares):
    """Opening takes 3 seconds, the first shard 5, the second 2; the second stands for ten."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.ran = 0.0, list[str]()

    def samples(self, job: ShardJob[SquaresConfig], plan: ArrayLayout) -> Sequence[tuple[Shard, float]]:
        first, second, *_ = self.shards(job, plan)
        return [(first, 1.0), (second, 10.0)]

    def open(self, job: ShardJob[SquaresConfig], plan: ArrayLayout) -> ArrayLayout:
        self.clock += 3
        return super().open(job, plan)

    def run_shard(self, job: ShardJob[SquaresConfig], work: ArrayLayout, shard: Shard) -> ShardOutput:
        self.clock += 2 if self.ran else 5
        self.ran.append(shard.key)
        return super().run_shard(job, work, shard)


def test_seconds_are_those_of_opening_and_of_shards_times_what_they_stand_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = Timed()
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: stage.clock)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert stage.measured_seconds(SquaresConfig(), Inputs(), Execution(), EFFORT) == 3 + 5 + 10 * 2
    assert len(stage.ran) == 2
    assert list(tmp_path.iterdir()) == [], "nothing is kept"


def test_nothing_is_measured_where_no_shard_stands_for_others(tmp_path: Path) -> None:
    assert Squares().measured_seconds(SquaresConfig(), Inputs(), Execution(), EFFORT) is None


def test_nothing_is_measured_where_what_is_read_is_not_there(tmp_path: Path) -> None:
    squares = make(Squares(), SquaresConfig(), {}, Store(tmp_path / "store"), Execution()).artifact
    stage, inputs = Timed(), Inputs({"squares": squares})
    assert stage.measured_seconds(SquaresConfig(), inputs, Execution(), EFFORT) is not None
    shutil.rmtree(squares.path)
    assert Timed().measured_seconds(SquaresConfig(), inputs, Execution(), EFFORT) is None
