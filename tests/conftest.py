"""What holds for every test."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

PROCESSES = os.environ.get("PYTEST_XDIST_WORKER_COUNT")
if PROCESSES is not None:
    # Test processes share the cores. With a thread for each core in each of them, threads that
    # wait for a core spin, and the suite takes half as long again.
    threads = max(1, (os.cpu_count() or 1) // int(PROCESSES))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))

# Commands that tests start read compiled modules. Without them each compiles 400 files anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from stages.charts import figure  # noqa: E402
from stages.models.devices import device_type  # noqa: E402
from tests.builders.limits import limit  # noqa: E402
from tests.shapes import check_shapes_in  # noqa: E402

check_shapes_in(["stages.memory", "stages.models", "stages.search"])
"""Before anything imports them: kernels are given, and give, arrays of the shapes that they name.
"""

if device_type("auto") == "cpu":
    os.environ.setdefault(
        "TRITON_INTERPRET", "1"
    )  # before Triton is imported: its own functions look, too

DRAW = figure.draw

settings.register_profile("memlm", deadline=None, max_examples=50)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile("memlm")
"""No example fails for being slow: machines that run the tests are shared. Every run draws other
examples. Hours: `--hypothesis-profile long`.
"""


gc.disable()


def pytest_collection_finish() -> None:
    """Hides modules and tests from the collector of garbage, which took a twentieth of the time for
    them.
    """
    gc.freeze()
    gc.enable()


# Gives them back: libraries in C++ look for leaks at the end. pytest collects garbage five times
# before that.
atexit.register(gc.unfreeze)


EMPTY = SimpleNamespace(width=9, height=9, element="<svg></svg>", png=b"\x89PNG")


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """Charts are empty, but where `drawn` asks for more: the first takes a second, each other a
    quarter.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figure, "draw", lambda chart: EMPTY)
        yield


@pytest.fixture(scope="session", autouse=True)
def few_checked_positions() -> Iterator[None]:
    """Conditions are checked at one position of a run; tests of them ask for all."""
    with pytest.MonkeyPatch.context() as patched:
        limit(patched, conditions_checked=1)
        yield


@contextmanager
def drawing() -> Iterator[None]:
    """While charts are drawn."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figure, "draw", DRAW)
        yield


@pytest.fixture(scope="module")
def drawn() -> Iterator[None]:
    """Charts are drawn, in a module that is about them."""
    with drawing():
        yield


@pytest.fixture(scope="session", autouse=True)
def known_to_other_processes() -> Iterator[None]:
    """Workers and commands that tests start know the small stages of tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MEMLM_PARTS", "tests.stages.small_parts")
        patched.setenv(
            "PYTHONPATH",
            os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]),
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def unflushed() -> Iterator[None]:
    """`os.fsync` of an open file does nothing: what tests read was written by a machine that is
    still running.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda descriptor: os.fstat(descriptor) and None)
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python hears it: a process that was started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
