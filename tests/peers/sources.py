"""Where the authors' own code lies, and how a file of it is loaded; nothing of it is part of this
repository.
"""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch


class Peer(NamedTuple):
    """A repository that memlm is compared with; its folder is the one that `git clone` makes."""

    name: str
    address: str
    commit: str
    """That was compared; a later one is tried as it is."""
    made_equal: str
    """Where memlm differs by choice, and what both sides do here."""
    patched: str
    """What is changed of the surroundings of their code while it runs."""

    @property
    def clone(self) -> str:
        return f"git clone https://github.com/{self.address}"

    def folder(self, sources: Path) -> Path:
        return sources / self.address.split("/")[1]


@contextmanager
def importable(modules: Mapping[str, ModuleType], *folders: Path) -> Iterator[None]:
    """While it lasts, `import` finds these modules, then those of the folders; after it nothing of
    them is left.
    """
    paths = [str(folder) for folder in folders]
    with patch.dict(sys.modules, modules), patch.object(sys, "path", [*paths, *sys.path]):
        yield


def load(path: Path, name: str) -> ModuleType:
    """A file as a module of this name, run anew."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in(name: str, **contents: Any) -> ModuleType:
    """A module that holds nothing else."""
    module = ModuleType(name)
    module.__dict__.update(contents)
    return module
