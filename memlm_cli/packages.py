"""Which extra of memlm brings a package that is not installed."""

import re
import shlex
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

OWN = ("memlm_cli", "pipelines", "stages")
"""A module of these that is missing is a bug."""


def installation(module: str, requirements: Iterable[str] | None = None) -> str:
    """The commands that install what a module is in, and the extras of memlm that do.

    Args:
        module: as it is imported (`faiss`); distributions are called like it, or begin with it (`faiss-cpu`).
        requirements: those of memlm; None: as its installation says.

    >>> installation("faiss", ["zarr>=3", 'faiss-cpu>=1.10; extra == "cpu"', 'faiss-gpu>=1.10; extra == "gpu"'])
    "pip install 'faiss-cpu>=1.10' (memlm's extra cpu), or pip install 'faiss-gpu>=1.10' (memlm's extra gpu)"
    """
    name = re.compile(rf"{re.escape(module.replace('_', '-'))}(?![a-z0-9])", re.IGNORECASE)
    wanted = [line for line in (_own_requirements() if requirements is None else requirements) if name.match(line)]
    return ", or ".join(map(_command, wanted)) or f"pip install {module.replace('_', '-')}"


def _command(requirement: str) -> str:
    package, _, condition = requirement.partition(";")
    extra = re.search(r"""extra == ['"]([\w-]+)""", condition)
    brought_by = f" (memlm's extra {extra[1]})" if extra else ""
    return f"pip install {shlex.quote(package.strip())}{brought_by}"


def _own_requirements() -> list[str]:
    try:
        return requires("memlm") or []
    except PackageNotFoundError:
        return []
