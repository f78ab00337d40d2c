"""Records what this process does to a folder, in the order in which the disk may rely on it.

Python's calls that sync, rename and remove are wrapped. Before each of them the whole folder is
looked at, so that writes of any library, Python's or not, are seen: as names that appeared and as
content that changed. What a library syncs beneath Python goes unseen and counts as not synced, so
that nothing is taken for safer than it is.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

SYNCING = ("fsync", "fdatasync")
CHANGING = ("rename", "replace", "unlink", "remove", "rmdir")
RACY_SECONDS = 0.05
"""File systems count time in ticks: a file written so shortly ago may change again without another
time.
"""


@dataclass(eq=False)
class Folder:
    """A folder, by what it is and not by its name."""


@dataclass(eq=False)
class File:
    """A file, by what it is and not by its name."""


Node: TypeAlias = Folder | File


@dataclass(frozen=True)
class Data:
    """A file has other content."""

    file: File
    content: bytes


@dataclass(frozen=True)
class Entries:
    """Names of folders change, together or not at all: (folder, name, what it names from now on or
    None).
    """

    changes: tuple[tuple[Folder, str, Node | None], ...]


@dataclass(frozen=True)
class Sync:
    """A file's content, or a folder's names, are on the disk from now on."""

    node: Node


@dataclass(frozen=True)
class Done:
    """The caller was told that something is done, and relies on it."""

    what: Any


Event: TypeAlias = Data | Entries | Sync | Done


@dataclass
class _Seen:
    """What the recorder last saw of the folder."""

    nodes: dict[int, Node] = field(default_factory=dict)
    names: dict[Folder, dict[str, Node]] = field(default_factory=dict)
    content: dict[File, bytes] = field(default_factory=dict)
    signature: dict[File, tuple[int, int, float]] = field(default_factory=dict)


class Recorder:
    """What happened below `root`, which with all that was in it at the beginning is on the disk
    already.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.top = Folder()
        self.events: list[Event] = []
        self._lock = threading.RLock()
        self._seen = _Seen({self.root.stat().st_ino: self.top}, {self.top: {}})
        self._look()
        self.events += [Sync(node) for node in self._seen.nodes.values()]
        self.began = len(self.events)

    def done(self, what: Any) -> None:
        """Note that the caller was told of something."""
        with self._lock:
            self._look()
            self.events.append(Done(what))

    # Looking

    def _look(self) -> None:
        self._look_into(self.root, self.top)

    def _look_into(self, path: Path, folder: Folder) -> None:
        try:
            entries = list(os.scandir(path))
        except FileNotFoundError:
            return
        before, now = self._seen.names[folder], dict[str, Node]()
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # another thread has just removed it
            if stat.S_ISLNK(status.st_mode):
                raise ValueError(f"{entry.path}: links are not recorded")
            now[entry.name] = self._node(status, before.get(entry.name))
        for name in before.keys() | now.keys():
            if before.get(name) is not now.get(name):
                self.events.append(Entries(((folder, name, now.get(name)),)))
        self._seen.names[folder] = now
        for name, node in now.items():
            self._look_at(path / name, node)

    def _node(self, status: os.stat_result, before: Node | None) -> Node:
        kind = Folder if stat.S_ISDIR(status.st_mode) else File
        node = self._seen.nodes.get(status.st_ino)
        if not isinstance(node, kind):
            node = self._seen.nodes[status.st_ino] = kind()
            if isinstance(node, Folder):
                self._seen.names[node] = {}
            else:
                self._seen.content[node] = b""
        return node

    def _look_at(self, path: Path, node: Node) -> None:
        if isinstance(node, Folder):
            self._look_into(path, node)
            return
        try:
            status = path.stat()
            signature = (
                status.st_size,
                status.st_mtime_ns,
                max(0.0, status.st_mtime + RACY_SECONDS - time.time()),
            )
            if signature != self._seen.signature.get(node) or signature[2]:
                content = path.read_bytes()
                self._seen.signature[node] = signature
                if content != self._seen.content[node]:
                    self._seen.content[node] = content
                    self.events.append(Data(node, content))
        except FileNotFoundError:
            pass

    # Calls

    def _place(self, path: Any, dir_fd: int | None) -> tuple[Path, str] | None:
        """Folder and name that a call means, if below the root."""
        base = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path.cwd()
        whole = base / os.fsdecode(path)
        folder = whole.parent.resolve()
        return (folder, whole.name) if folder.is_relative_to(self.root) else None

    def _folder(self, path: Path) -> Folder:
        node = self._seen.nodes[path.stat().st_ino]
        assert isinstance(node, Folder)
        return node

    def sync(self, descriptor: Any) -> None:
        """`os.fsync`: what was written until it was called is on the disk when it returns. It is
        not called: no power fails here, and it takes long."""
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        with self._lock:
            self._look()
            node = self._seen.nodes.get(os.fstat(number).st_ino)
            if node is not None:
                self.events.append(Sync(node))

    def change(self, call: Callable[..., Any], *paths: Any, **where: Any) -> Any:
        """A call that moves, makes or removes a name."""
        with self._lock:
            self._look()
            source = self._place(paths[0], where.get("src_dir_fd", where.get("dir_fd")))
            moves = call.__name__ in ("rename", "replace")
            target = self._place(paths[1], where.get("dst_dir_fd")) if moves else None
            moved = self._seen.names[self._folder(source[0])].get(source[1]) if source else None
            result = call(*paths, **where)
            if moves:
                self._moved(source, target, moved)
            elif source and call.__name__ in ("unlink", "remove", "rmdir"):
                self._change([(source, None)])
            return result

    def _moved(self, source: Any, target: Any, moved: Node | None) -> None:
        if source and target and moved:
            self._change([(source, None), (target, moved)])

    def _change(self, changes: list[tuple[tuple[Path, str], Node | None]]) -> None:
        noted = []
        for (path, name), node in changes:
            folder = self._folder(path)
            names = self._seen.names[folder]
            self._forget(names.pop(name, None), changes)
            if node is not None:
                names[name] = node
            noted.append((folder, name, node))
        self.events.append(Entries(tuple(noted)))

    def _forget(
        self, node: Node | None, changes: list[tuple[tuple[Path, str], Node | None]]
    ) -> None:
        """Numbers of what is gone are given to new files."""
        if node is not None and all(kept is not node for _, kept in changes):
            self._seen.nodes = {
                number: known for number, known in self._seen.nodes.items() if known is not node
            }


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Record what this process does below a folder."""
    recorder = Recorder(root)
    with replaced(
        dict.fromkeys(SYNCING, recorder.sync)
        | {name: _wrapped(recorder, name) for name in CHANGING}
    ):
        yield recorder
        recorder.done("the end")


@contextmanager
def replaced(calls: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Let functions of `os` be others for a while."""
    before = {name: getattr(os, name) for name in calls}
    try:
        for name, call in calls.items():
            setattr(os, name, call)
        yield
    finally:
        for name, call in before.items():
            setattr(os, name, call)


def _wrapped(recorder: Recorder, name: str) -> Callable[..., Any]:
    call = getattr(os, name)
    return lambda *paths, **where: recorder.change(call, *paths, **where)
