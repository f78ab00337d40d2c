"""What holds for every test."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

import tests.shapes  # noqa: F401

install_import_hook(["stages.memory", "stages.models", "stages.search"], "tests.shapes.checked")
"""Before anything imports them: kernels are given, and give, arrays of the shapes that they name."""

settings.register_profile("memlm", deadline=None)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile("memlm")
"""No example fails for being slow: machines that run the tests are shared. Hours: `--hypothesis-profile long`."""


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python hears it: a process that was started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
