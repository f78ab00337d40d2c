"""The ledger of an address whose documents change: what survives the end of its process.

It lies beside the artifacts, in `.serving/KEY` of the store. `ledger.json` is replaced as a whole,
and on the disk before a request is answered. Texts that wait for their job are files of their own.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import make_folder, write_inside
from stages.artifacts.lock import hold_lock
from stages.artifacts.store import Store
from stages.errors import content_of
from stages.reporting import Silent

FOLDER = ".serving"
CONTENT = "ledger.json"
TEXTS = "texts"
MAX_ENDED = 1000
"""Jobs that have ended and are still remembered, the latest."""

Action = Literal["add", "delete"]
JobState = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class DocumentChange:
    """Documents that come, or go; never both, so that a text may come back under another name."""

    forgotten: frozenset[str] = frozenset()
    """Names of the documents that go."""
    added: tuple[Path, ...] = ()
    """Files of JSON lines with `name` and `text` of the documents that come."""


class JobRecord(BaseModel):
    """A document that is added or deleted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    action: Action
    document: str
    state: JobState = "waiting"
    created: str
    ended: str | None = None
    message: str | None = None
    """Reason why it failed."""
    generation: int | None = None
    """The generation that it made."""
    receipt: dict[str, Any] | None = None

    @classmethod
    def new(cls, action: Action, document: str) -> "JobRecord":
        """A job that begins to wait now."""
        return cls(id=secrets.token_hex(8), action=action, document=document, created=_now())

    def with_state(self, state: JobState, **changed: Any) -> "JobRecord":
        """The job in another state; states that end it have a time."""
        ended = None if state in ("waiting", "running") else _now()
        return self.model_copy(update={"state": state, "ended": ended, **changed})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Content(BaseModel):
    """Content of a ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    generation: int = 0
    """Number of changes so far."""
    artifacts: dict[str, str] = {}
    """References of the artifacts that are served instead of the first ones, by role."""
    deleted: tuple[str, ...] = ()
    """Names of documents that are hidden until a job has left them out."""
    made: tuple[str, ...] = ()
    """References of artifacts that this address made, or began to make."""
    jobs: tuple[JobRecord, ...] = ()

    def job(self, id: str) -> JobRecord | None:
        """The job of an id; None: there is none."""
        return next((job for job in self.jobs if job.id == id), None)

    def with_jobs(self, *changed: JobRecord, **fields: Any) -> "Content":
        """The same with jobs added or replaced, and with other fields."""
        by_id = {job.id: job for job in self.jobs} | {job.id: job for job in changed}
        ended = [job.id for job in by_id.values() if job.ended is not None]
        for id in ended[: max(0, len(ended) - MAX_ENDED)]:
            del by_id[id]
        return self.model_copy(update={"jobs": tuple(by_id.values()), **fields})


class Ledger:
    """The ledger of one address; `content` is what its file holds."""

    def __init__(self, store: Store, artifacts: Mapping[str, Artifact]) -> None:
        """Args:
        artifacts: those that the address serves at first, by role.
        Raises: ArtifactError if its file was damaged.
        """
        named = sorted((role, artifact.reference) for role, artifact in artifacts.items())
        key = hashlib.blake2b(json.dumps(named).encode(), digest_size=6).hexdigest()
        self._root = store.root
        self.folder = store.root / FOLDER / key
        self.content = self._read()

    def _read(self) -> Content:
        path = self.folder / CONTENT
        if not path.is_file():
            return Content()
        with content_of(path):
            return Content.model_validate_json(path.read_bytes())

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Keep other processes from changing it. Raises: BusyError if one does already."""
        lock = self.folder.with_suffix(".lock")
        with hold_lock(lock, f"The documents of {self.folder}", wait=False, reporter=Silent()):
            self.content = self._read()
            yield

    def save(self, content: Content) -> None:
        """Replace the content; it is on the disk when this returns. Raises: OSError."""
        make_folder(self.folder)
        write_inside(self._root, self.folder / CONTENT, content.model_dump_json(indent=1))
        self.content = content

    # Texts

    @property
    def texts(self) -> Path:
        """Folder of the texts that wait."""
        return self.folder / TEXTS

    def text_file(self, job: JobRecord) -> Path:
        """File with the text of a document that is added."""
        return self.texts / f"{job.id}.jsonl"

    def write_text(self, job: JobRecord, text: str) -> None:
        """Keep a text until its job ends. Raises: OSError."""
        make_folder(self.texts)
        line = json.dumps({"name": job.document, "text": text}) + "\n"
        write_inside(self._root, self.text_file(job), line)

    def remove_texts(self, jobs: Iterable[JobRecord]) -> None:
        """Remove the texts of jobs that have ended."""
        for job in jobs:
            self.text_file(job).unlink(missing_ok=True)

    def remove_stray_texts(self) -> None:
        """Remove all texts but those of jobs that wait."""
        waiting = {self.text_file(job) for job in self.content.jobs if job.ended is None}
        if self.texts.is_dir():
            for path in self.texts.iterdir():
                if path not in waiting:
                    os.unlink(path)
