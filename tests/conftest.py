"""What holds for every test."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.shapes import check_shapes_in

check_shapes_in(["stages.memory", "stages.models", "stages.search"])
"""Before anything imports them: kernels are given, and give, arrays of the shapes that they name."""

settings.register_profile("memlm", deadline=None)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile("memlm")
"""No example fails for being slow: machines that run the tests are shared. Hours: `--hypothesis-profile long`."""


@pytest.fixture(scope="session", autouse=True)
def unflushed() -> Iterator[None]:
    """`os.fsync` of an open file does nothing: what tests read was written by a machine that is still running."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda descriptor: os.fstat(descriptor) and None)
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python hears it: a process that was started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
