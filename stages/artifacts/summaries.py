"""Summaries of a store's artifacts: for a list of ten thousand, no manifest is read that was read before.

What manifests said is kept in one file, `.stamps/manifests.json`. It only saves time: a line of it counts as long as
size, times and inode of its manifest are those of when it was read, the whole file has a checksum, and without it every
manifest is read. Whoever writes it replaces it by what he saw himself, so that of two writers either is right.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.durable import write_atomically
from stages.artifacts.kinds import KINDS, USED_UP
from stages.artifacts.manifest import MANIFEST, Manifest
from stages.errors import ArtifactError

if TYPE_CHECKING:
    from stages.artifacts.store import Store

SETTLED_SECONDS = 2.0
"""File systems count time in steps, some of two seconds: a file changed since may not show it by its times."""
Stamp = list[int]


@dataclass(frozen=True)
class Summary:
    """Fields of a manifest that lists and graphs need."""

    reference: str
    bytes: int
    """Bytes of all its files, the manifest among them."""
    created: str
    inputs: Mapping[str, str]
    """References by role."""

    @property
    def kind(self) -> str:
        return self.reference.partition("/")[0]

    @property
    def id(self) -> str:
        return self.reference.partition("/")[2]

    @property
    def parents(self) -> set[str]:
        """References of what it was made from directly."""
        return set(self.inputs.values())

    @property
    def needed(self) -> set[str]:
        """Parents that it cannot be read without."""
        return {reference for role, reference in self.inputs.items() if role not in USED_UP}


def summaries(store: "Store") -> list[Summary]:
    """All finished artifacts, by kind in the order of the pipeline, then by age; unreadable ones left out."""
    file = store.root / ".stamps" / "manifests.json"
    known = {} if store.verifies_inputs else _read(file)
    found = dict(_look(store, known))
    settled = {reference: line for reference, line in found.items() if _is_settled(line[0])}
    if settled.keys() != known.keys() or any(settled[reference] is not known[reference] for reference in settled):
        _write(file, settled)
    order = {kind: place for place, kind in enumerate(KINDS)}
    artifacts = (_summary(reference, *line) for reference, line in found.items())
    return sorted(artifacts, key=lambda one: (order[one.kind], one.created, one.id))


def _summary(reference: str, stamp: Stamp, said: list[Any]) -> Summary:
    files, created, inputs = said
    return Summary(reference, files + stamp[0], created, inputs)


Line = tuple[Stamp, list[Any]]
"""A manifest's stamp, its own size first, and its summary: bytes of the other files, created, inputs."""


def _look(store: "Store", known: Mapping[str, Line]) -> Iterator[tuple[str, Line]]:
    for reference in store.references():
        with suppress(ArtifactError, OSError):
            stamp = _stamp(f"{store.root}/{reference}/{MANIFEST}")
            line = known.get(reference)
            if line is None or line[0] != stamp:
                manifest = Manifest.read(store.root / reference)
                inputs = {role: record.reference for role, record in manifest.inputs.items()}
                line = stamp, [manifest.bytes, manifest.created, inputs]
            yield reference, line


def _stamp(manifest: str) -> Stamp:
    """Taken before the manifest is read: one that is replaced meanwhile does not match."""
    status = os.stat(manifest)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _is_settled(stamp: Stamp) -> bool:
    return max(stamp[1:3]) < (time.time() - SETTLED_SECONDS) * 10**9


def _read(file: Path) -> dict[str, Line]:
    try:
        check, _, content = file.read_bytes().partition(b"\n")
        return json.loads(content) if check == _checksum(content) else {}
    except (OSError, ValueError):
        return {}


def _write(file: Path, lines: Mapping[str, Line]) -> None:
    content = json.dumps(lines, separators=(",", ":")).encode()
    with suppress(OSError):
        write_atomically(file, _checksum(content) + b"\n" + content)


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()
