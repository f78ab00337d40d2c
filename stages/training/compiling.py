"""Compiled forward passes: fewer kernel calls and less memory traffic, after some time of
compiling.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from stages.errors import UsageError, first_line
from stages.models.backbone import Backbone

CXX = {"darwin": "clang++", "win32": "cl"}
"""Environment variable that names the C++ compiler if it is not g++."""


def require_compiler(device: str) -> None:
    """Raises: UsageError, saying what is missing, if nothing can be compiled here for `cpu` or
    `cuda`.
    """
    if missing := next(_missing(device), None):
        raise UsageError(
            f"--compile needs {missing}, which is not installed: install it, or train without --compile."
        )


def _missing(device: str) -> Iterator[str]:
    if device == "cuda" and find_spec("triton") is None:
        yield "the package triton"
    compiler = os.environ.get("CXX", CXX.get(sys.platform, "g++"))
    if shutil.which(compiler) is None:
        yield f"a C++ compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        yield "Python's headers (Python.h; python3-dev of most distributions)"


class Compiled:
    """Parts of a backbone with a compiled forward pass, for tensors of one shape.

    The parts themselves and the names of weights do not change. Callers outside `used`, such as
    validation with windows of other lengths, run the original forward pass.
    """

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        # Whole or not at all: a pass that falls back to Python halfway is slow, without a message.
        self._passes = [
            (part, torch.compile(part.forward, fullgraph=True, dynamic=False)) for part in parts
        ]

    @contextmanager
    def used(self) -> Iterator[None]:
        """Context in which calls run the compiled passes.

        Raises: UsageError if one cannot be compiled: there is no silent fallback.
        """
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

        for part, compiled in self._passes:
            # On the instance, where it hides the class's own: modules and names of weights do not
            # change.
            part.__dict__["forward"] = compiled
        try:
            yield
        except (FailOnRecompileLimitHit, TorchDynamoException) as error:
            raise UsageError(
                f"The model cannot be compiled: {first_line(error).rstrip('.: ')}. Train it without --compile."
            ) from error
        finally:
            for part, _ in self._passes:
                del part.__dict__["forward"]


def compiled(backbone: Backbone, name: str) -> Compiled:
    """The parts of the backbone `name` that are worth compiling. Raises: UsageError if there are
    none.
    """
    parts = backbone.compiled_parts()
    if not parts:
        raise UsageError(
            f"The backbone {name!r} has no part that is worth compiling: train it without --compile."
        )
    return Compiled(parts)
