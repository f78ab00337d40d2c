"""Garbage in a store: abandoned drafts, and artifacts that neither a name nor a report needs."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stages.artifacts.artifact import needed_for
from stages.artifacts.durable import REMOVED, delete, remove_folder
from stages.artifacts.kinds import KINDS
from stages.artifacts.lock import Attempt, held, is_held
from stages.artifacts.references import REMOVE, advised, draft_id
from stages.artifacts.store import Store
from stages.errors import ArtifactError, BusyError
from stages.reporting import Silent


@dataclass(frozen=True)
class Garbage:
    """A folder that can be removed, the reason, and the bytes that it frees."""

    path: Path
    why: str
    bytes: int
    artifact: str | None = None
    """Reference of the artifact; None if the folder is no artifact."""


@dataclass(frozen=True)
class Unfinished:
    """A draft in a store."""

    path: Path
    alive: bool
    """Whether a process is working on it."""
    attempt: Attempt | None
    """The last attempt; None if it was not recorded."""

    @property
    def bytes(self) -> int:
        return folder_bytes(self.path)

    @property
    def state(self) -> str:
        """State and last attempt, such as `interrupted (memlm train tokens/a, begun 2026-11-22
        02:30 UTC)`.
        """
        state, tells = "being made" if self.alive else "interrupted", self.attempt
        if tells is None:
            return state
        who = f" by process {tells.pid} on {tells.host}" if self.alive else ""
        return (
            f"{state}{who} (memlm {tells.command}, begun {tells.began[:16].replace('T', ' ')} UTC)"
        )


def unfinished(store: Store) -> list[Unfinished]:
    """All drafts in a store, active and abandoned."""
    return [
        Unfinished(path, is_held(store.lock_file(kind, draft_id(path))), Attempt.read(path))
        for kind in KINDS
        for path in sorted(store.root.glob(f"{kind}/.*-partial"))
    ]


def find_garbage(store: Store, *, unnamed: bool = False) -> list[Garbage]:
    """Find the folders that garbage collection would remove.

    Args:
        store: the store to search.
        unnamed: include artifacts that no name and no report needs, directly or through artifacts
        made from them.
    Raises: ArtifactError if a manifest cannot be read, since its inputs could then be mistaken for
    garbage.
    """
    found = [
        Garbage(draft.path, draft.state, draft.bytes)
        for draft in unfinished(store)
        if not draft.alive
    ]
    found += [
        Garbage(path, "left over from an interrupted removal", folder_bytes(path))
        for kind in KINDS
        for path in sorted(store.root.glob(f"{kind}/.*-removed"))
    ]
    if unnamed:
        folders = set(
            store.references()
        )  # listed first, so an artifact published meanwhile is not called unreadable
        artifacts = store.artifacts()
        _require_readable(store, folders - {artifact.reference for artifact in artifacts})
        named = {f"{kind}/{id}" for kind in KINDS for id in store.names(kind).values()}
        reached = needed_for(
            named | {a.reference for a in artifacts if a.kind == "report"}, artifacts
        )
        found += [
            Garbage(a.path, "no name and no report leads to it", a.bytes, a.reference)
            for a in artifacts
            if a.reference not in reached
        ]
    return found


def remove_garbage(store: Store, garbage: list[Garbage]) -> None:
    """Remove the folders that `find_garbage` found."""
    store.remove(*(item.artifact for item in garbage if item.artifact is not None))
    for item in garbage:
        if item.artifact is None:
            _remove_leftover(store, item.path)


def _remove_leftover(store: Store, path: Path) -> None:
    """Remove a draft, unless a process has just resumed it."""
    lock_file = store.lock_file(path.parent.name, draft_id(path))
    with suppress(BusyError), held(lock_file, path.name, wait=False, reporter=Silent()):
        if path.is_symlink():
            path.unlink()  # the target does not belong to the store
        elif path.name.endswith(REMOVED):
            delete(path)
        else:
            remove_folder(path)


def _require_readable(store: Store, unread: set[str]) -> None:
    folders = (store.root / reference for reference in sorted(unread))
    left = [
        f"{one.parent.name}/{one.name}" for one in folders if one.is_dir() and not one.is_symlink()
    ]
    if left:
        raise ArtifactError(
            f"The manifest of {left[0]} cannot be read, so what it was made from is not known: nothing "
            f"is removed for want of a name. Remove that first: {advised(store.root, *REMOVE, left[0])}"
        )


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; 0 if it does not exist."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
