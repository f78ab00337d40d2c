"""What holds of every executor; a test class of each inherits it."""

from pathlib import Path
from typing import ClassVar

import pytest

from stages.artifacts.make import Outcome, make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import DataError
from stages.reporting import Reporter, Silent
from tests.stages.artifacts.toy import SquaresConfig, Sums

LENGTH = 7


class ExecutorContract:
    workers: ClassVar[int]
    cluster: ClassVar[str | None] = None

    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        (tmp_path / "trace").mkdir()
        return tmp_path / "trace"

    def made(self, store: Store, stage: Sums, reporter: Reporter | None = None) -> Outcome:
        execution = Execution(
            reporter=reporter or Silent(), workers=self.workers, cluster=self.cluster
        )
        return make(stage, SquaresConfig(length=LENGTH), {}, store, execution)

    def test_chains_run_in_order_in_one_place_and_phases_one_after_the_other(
        self, store: Store, trace: Path
    ) -> None:
        artifact = self.made(store, Sums(trace)).artifact
        assert artifact.metrics == {"sum": sum(range(LENGTH))}
        sums = {f"sums/{n:03}": str(sum(range(n % 2, n + 1, 2))) for n in range(LENGTH)}
        expected = {**sums, "sum": str(sum(range(LENGTH)))}
        assert {
            name: artifact.file(name).read_text() for name in artifact.manifest.files
        } == expected
        ran = [file.name.rsplit("-", 1) for file in trace.iterdir()]
        assert len(ran) == LENGTH + 1
        assert len({process for key, process in ran if key != "all" and int(key[-3:]) % 2}) == 1

    def test_an_error_passes_through_and_the_rest_is_done_by_the_same_command(
        self, store: Store, trace: Path
    ) -> None:
        with pytest.raises(DataError, match="line 3 is bad"):
            self.made(store, Sums(trace, "all", DataError("line 3 is bad")))
        assert not store.artifacts()
        first = {file.name.rsplit("-", 1)[0] for file in trace.iterdir()}
        assert first == {f"add-{number:03}" for number in range(LENGTH)}
        outcome = self.made(store, Sums(trace))
        assert outcome.status == "resumed"
        assert len(list(trace.iterdir())) == LENGTH + 1

    def test_any_error_passes_through_and_keeps_the_shards_before_it(
        self, store: Store, trace: Path
    ) -> None:
        with pytest.raises(EOFError, match="no data left"):
            self.made(store, Sums(trace, "add-004", EOFError("no data left"), seconds=0.01))
        (log,) = store.root.glob("tokens/.*-partial/progress.jsonl")
        assert all(key in log.read_text() for key in ("add-000", "add-002"))
        assert self.made(store, Sums(trace)).status == "resumed"

    def test_an_interruption_keeps_what_is_committed(self, store: Store, trace: Path) -> None:
        class Interrupting(Silent):
            def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
                if done == 3:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.made(store, Sums(trace, seconds=0.05), Interrupting())
        (log,) = store.root.glob("tokens/.*-partial/progress.jsonl")
        kept = log.read_text().count("\n")
        assert 3 <= kept < LENGTH + 1
        before = len(list(trace.iterdir()))
        assert self.made(store, Sums(trace)).status == "resumed"
        assert len(list(trace.iterdir())) <= before + LENGTH + 1 - kept
