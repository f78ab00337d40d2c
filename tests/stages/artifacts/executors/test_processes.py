"""Executors on this machine: in this process, and in several."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.errors import ResourceError
from stages.reporting import Silent
from tests.builders.processes import processes_of
from tests.stages.artifacts.executors.contract import ExecutorContract
from tests.stages.artifacts.toy import Sums


class TestLocal(ExecutorContract):
    workers = 1


PARENT = """
from pathlib import Path
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from tests.stages.artifacts.toy import SquaresConfig, Sums

folder = Path({folder!r})
make(Sums(folder / "trace", seconds=0.2), SquaresConfig(length=400), {{}}, Store(folder), Execution(workers=2))
"""


def lives(process: int) -> bool:
    """Whether a process is there and no zombie."""
    stat = Path(f"/proc/{process}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class TestProcesses(ExecutorContract):
    workers = 2

    def test_two_processes_work_and_the_one_that_commits_opens_nothing(
        self, store: Store, trace: Path
    ) -> None:
        stage = Sums(trace, seconds=0.02)
        stage.closed_to = os.getpid()
        self.made(store, stage)
        assert len(processes_of(trace)) == 2
        assert not multiprocessing.active_children()

    def test_a_worker_that_is_killed_is_told_of(self, store: Store, trace: Path) -> None:
        class Killing(Silent):
            def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
                for process in processes_of(trace) if done == 2 else ():
                    os.kill(process, signal.SIGKILL)

        with pytest.raises(ResourceError):
            self.made(store, Sums(trace, seconds=0.05), Killing())
        assert not multiprocessing.active_children()
        assert self.made(store, Sums(trace)).status == "resumed"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(folder=str(tmp_path))])
    while len(processes_of(tmp_path / "trace")) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    workers, deadline = processes_of(tmp_path / "trace"), time.monotonic() + 30
    while any(map(lives, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
