"""Garbage in a store: abandoned drafts, and artifacts that neither a name nor a report needs."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stages.artifacts.artifact import needed_for
from stages.artifacts.durable import REMOVED, delete, remove_folder
from stages.artifacts.kinds import KINDS
from stages.artifacts.lock import Attempt, hold_lock, is_held
from stages.artifacts.references import REMOVE, WORK, advised, draft_id
from stages.artifacts.store import Store
from stages.errors import ArtifactError, BusyError
from stages.registry import OUTSIDE
from stages.reporting import Silent

RESUMABLE_SECONDS = 7 * 24 * 3600
"""Seconds for which interrupted work is kept, from its last write: the user was told that it is."""


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
    def promised(self) -> bool:
        """Whether its command can resume it, and it was written in the last week.

        A draft that holds a link cannot be resumed, since `Draft` refuses it.
        """
        written = 0.0
        for path in (self.path, *self.path.rglob("*")):
            # Another process may resume the draft and remove files meanwhile.
            with suppress(FileNotFoundError):
                if path.is_symlink():
                    return False
                written = max(written, path.lstat().st_mtime)
        # A time in the future, from a wrong clock, counts as now.
        recent = time.time() - written < RESUMABLE_SECONDS
        return recent and (self.path / WORK).is_file()

    @property
    def inputs(self) -> set[str]:
        """References of the artifacts that its work reads; empty if they are not recorded."""
        try:
            records = json.loads((self.path / WORK).read_text(encoding="utf-8"))["inputs"]
            return {f"{record['kind']}/{record['id']}" for record in records.values()}
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return set()

    @property
    def state(self) -> str:
        """State and last attempt, such as `interrupted (memlm train tokens/a, begun 2026-11-22
        02:30 UTC)`.
        """
        state = "being made" if self.alive else "interrupted"
        tells = self.attempt
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


def find_garbage(
    store: Store, *, unnamed: bool = False, interrupted: bool = False
) -> list[Garbage]:
    """Find the folders that garbage collection would remove.

    Args:
        store: the store to search.
        unnamed: include artifacts that no name, no report and no kept draft needs, directly or
        through artifacts made from them.
        interrupted: include drafts that could still be resumed.
    Raises: ArtifactError if a manifest cannot be read, since its inputs could then be mistaken for
    garbage.
    """
    garbage = []
    kept_drafts = []
    for draft in unfinished(store):
        if draft.alive or (draft.promised and not interrupted):
            kept_drafts.append(draft)
        else:
            garbage.append(Garbage(draft.path, draft.state, draft.bytes))

    for kind in KINDS:
        for path in sorted(store.root.glob(f"{kind}/.*-removed")):
            size = folder_bytes(path)
            garbage.append(Garbage(path, "left over from an interrupted removal", size))
    if unnamed:
        garbage += _unneeded(store, kept_drafts)
    return garbage


def _unneeded(store: Store, drafts: list[Unfinished]) -> list[Garbage]:
    """Artifacts that no name, no report and none of these drafts needs."""
    # Listed first, so an artifact published meanwhile is not called unreadable.
    folders = set(store.references())
    artifacts = store.artifacts()
    _require_readable(store, folders - {artifact.reference for artifact in artifacts})

    roots = {f"{kind}/{id}" for kind in KINDS for id in store.names(kind).values()}
    roots |= {artifact.reference for artifact in artifacts if artifact.kind == "report"}
    # Without its inputs, work that is kept could not be resumed.
    for draft in drafts:
        roots |= draft.inputs
    needed = needed_for(roots, artifacts)
    return [
        Garbage(
            artifact.path, "no name and no report leads to it", artifact.bytes, artifact.reference
        )
        for artifact in artifacts
        if artifact.reference not in needed
    ]


def remove_garbage(store: Store, garbage: list[Garbage]) -> None:
    """Remove the folders that `find_garbage` found."""
    store.remove(*(item.artifact for item in garbage if item.artifact is not None))
    for item in garbage:
        if item.artifact is None:
            _remove_leftover(store, item.path)


def _remove_leftover(store: Store, path: Path) -> None:
    """Remove a draft, unless a process has just resumed it."""
    lock_file = store.lock_file(path.parent.name, draft_id(path))
    with suppress(BusyError), hold_lock(lock_file, path.name, wait=False, reporter=Silent()):
        if path.is_symlink():
            path.unlink()  # the target does not belong to the store
        elif path.name.endswith(REMOVED):
            delete(path)
        else:
            remove_folder(path)


def _require_readable(store: Store, unread: set[str]) -> None:
    folders = (store.root / reference for reference in sorted(unread))
    unreadable = [
        f"{folder.parent.name}/{folder.name}"
        for folder in folders
        if folder.is_dir() and not folder.is_symlink()
    ]
    if unreadable:
        mend = f"Remove that first: {advised(store.root, *REMOVE, unreadable[0])}"
        if unreadable[0].partition("/")[0] not in KINDS:
            mend = f"If its stage is your own, set {OUTSIDE} to the module that registers it."
        raise ArtifactError(
            f"The manifest of {unreadable[0]} cannot be read, so what it was made from is not known: nothing "
            f"is removed for want of a name. {mend}"
        )


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; 0 if it does not exist."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
