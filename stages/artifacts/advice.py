"""Commands that messages advise: they run as they are printed."""

import os
import shlex
from pathlib import Path

DEFAULT_STORE = Path("memlm-store")
"""Folder of artifacts where nobody names one."""

REMOVE = ("artifacts", "rm", "--force")
"""The command that removes what is damaged."""


def advised(store: Path, *words: str) -> str:
    """A command about artifacts of a store, as it is typed."""
    return shlex.join(["memlm", *words, *store_words(store)])


def store_words(store: Path) -> list[str]:
    """Where a store is, if a new command would not know."""
    if store == DEFAULT_STORE or str(store) == os.environ.get("MEMLM_STORE"):
        return []
    return ["--store", str(store)]
