"""What holds for every test."""

from hypothesis import settings
from jaxtyping import install_import_hook

import tests.shapes  # noqa: F401

install_import_hook(["stages.memory", "stages.models", "stages.search"], "tests.shapes.checked")
"""Before anything imports them: kernels are given, and give, arrays of the shapes that they name."""

settings.register_profile("memlm", deadline=None)
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile("memlm")
"""No example fails for being slow: machines that run the tests are shared. Hours: `--hypothesis-profile long`."""
