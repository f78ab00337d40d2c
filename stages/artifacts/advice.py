"""Commands that messages recommend: they run as they are printed."""

import os
import shlex
from pathlib import Path

DEFAULT_STORE = Path("memlm-store")
"""Folder of artifacts where the user names none."""

REMOVE = ("artifacts", "rm", "--force")
"""The command that removes a damaged artifact."""


def advised(store: Path, *words: str) -> str:
    """A command about artifacts of a store, as a user types it."""
    return shlex.join(["memlm", *words, *store_words(store)])


def store_words(store: Path) -> list[str]:
    """Options that name a store; none if a new command finds it by itself."""
    if store == DEFAULT_STORE or str(store) == os.environ.get("MEMLM_STORE"):
        return []
    return ["--store", str(store)]
