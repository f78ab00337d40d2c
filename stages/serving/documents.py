"""Documents of an address: which there are, and which are to be added or deleted.

A change is on the disk before it is answered. A deleted document is hidden at once, and stays so
until a job has made artifacts without it. Another thread does the jobs: `stages.serving.changes`.
"""

import errno
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from stages.serving.engine import Engine
from stages.serving.held import HeldDocuments
from stages.serving.ledger import Action, Content, JobRecord, Ledger
from stages.serving.refusal import Refusal, invalid
from stages.serving.served import Serving
from stages.serving.settings import MAX_JOBS, MAX_NAME

FULL = (errno.ENOSPC, errno.EDQUOT)


class Documents:
    """The documents of the memory that is served; its methods may be called from any thread."""

    def __init__(self, serving: Serving, ledger: Ledger, held: HeldDocuments) -> None:
        """Args:
        held: the documents of the generation that is served.
        """
        self._serving = serving
        self._ledger = ledger
        self._held = held
        self._condition = threading.Condition()
        self._closed = False
        self._begin_again()
        ledger.remove_stray_texts()

    def _begin_again(self) -> None:
        """Let what an earlier process left go on: jobs under way wait again, and deletions that
        failed are tried again.
        """
        content = self.content
        tried = {job.document for job in self._live("delete")}
        again = [JobRecord.new("delete", name) for name in content.deleted if name not in tried]
        for job in content.jobs:
            # What was deleted while it was added need not be added any more.
            is_deleted = job.action == "add" and job.document in content.deleted
            if job.ended is None:
                again.append(job.with_state("cancelled" if is_deleted else "waiting"))
        if again:
            self._ledger.save(content.with_jobs(*again))

    # What there is

    @property
    def content(self) -> Content:
        """The ledger as it is now."""
        return self._ledger.content

    def listing(self, after: str, limit: int) -> list[dict[str, Any]]:
        """Documents in the order of their names, those that wait among them.

        Args:
            after: name behind which the list begins; empty: from the first.
            limit: maximum number of names.
        """
        with self._condition:
            deleted = set(self.content.deleted)
            counts = self._held.counts
            entries = {
                name: {"name": name, "state": "served", "documents": number}
                for name, number in counts.items()
                if name not in deleted
            }
            for job in self._live("add"):
                if job.document in deleted:
                    continue
                entries[job.document] = {"name": job.document, "state": "waiting", "job": job.id}
        names = sorted(name for name in entries if name > after)
        return [entries[name] for name in names[:limit]]

    # What is asked for

    def add(self, name: str, text: str) -> JobRecord:
        """Let a document be added. Raises: Refusal if it cannot be."""
        check_name(name)
        if not text.strip() or not self._serving.model.engine.text.ids(text):
            raise invalid("text: the document is empty.", "text", "document_empty")
        with self._changing() as content:
            self._require_room(content)
            if name in content.deleted:
                raise Refusal(
                    409,
                    "A document of this name is being deleted; add it again when that job has ended.",
                    param="name",
                    code="document_exists",
                )
            waits = any(job.document == name for job in self._live("add"))
            if waits or name in self._held.counts:
                raise Refusal(
                    409,
                    "A document of this name is there; delete it first, or choose another name.",
                    param="name",
                    code="document_exists",
                )
            job = JobRecord.new("add", name)
            self._ledger.write_text(job, text)
            self._save(content.with_jobs(job))
        return job

    def delete(self, name: str) -> JobRecord:
        """Hide a document for all later requests, and let it be forgotten.

        Raises: Refusal if there is none, or no other document is left.
        """
        with self._changing() as content:
            added = [job for job in self._live("add") if job.document == name]
            waiting = [job for job in added if job.state == "waiting"]
            begun = len(added) > len(waiting)
            tried = any(job.document == name for job in self._live("delete"))
            is_held = name in self._held.counts and not (name in content.deleted and tried)
            if not waiting and not begun and not is_held:
                raise Refusal(404, "There is no document of this name.", code="document_not_found")
            if is_held and not self._held.would_be_left({*content.deleted, name}):
                raise Refusal(
                    409,
                    "It is the last document of a memory, which cannot be empty; add another first.",
                    code="last_document",
                )
            cancelled = [job.with_state("cancelled") for job in waiting]
            job = JobRecord.new("delete", name)
            deleted = content.deleted
            if begun or is_held:
                deleted = tuple(dict.fromkeys([*deleted, name]))
            else:
                # Its text was never part of a memory.
                job = job.with_state("done", generation=content.generation)
            self._save(content.with_jobs(*cancelled, job, deleted=deleted))
            self._ledger.remove_texts(cancelled)
            self._serving.model.engine.hide(self._held.rows_of([name]))
        return job

    @contextmanager
    def _changing(self) -> Iterator[Content]:
        """Keep others from changing the ledger. Raises: Refusal if it cannot be written."""
        try:
            with self._condition:
                yield self.content
                self._condition.notify()
        except OSError as error:
            if error.errno in FULL:
                raise Refusal(507, "The disk of the store is full.", code="disk_full") from None
            raise Refusal(
                503, f"The store cannot be written: {error.strerror}.", code="store_not_writable"
            ) from None

    def _save(self, content: Content) -> None:
        self._ledger.save(content)

    def _require_room(self, content: Content) -> None:
        """Raises: Refusal if too many jobs wait."""
        if sum(job.ended is None for job in content.jobs) >= MAX_JOBS:
            raise Refusal(
                429,
                f"{MAX_JOBS:,} changes are waiting already; try again later.",
                code="queue_full",
                headers={"Retry-After": "30"},
            )

    def _live(self, action: Action) -> list[JobRecord]:
        """Jobs of a kind that have not ended."""
        jobs = self.content.jobs
        return [job for job in jobs if job.action == action and job.ended is None]

    # What the thread of jobs does

    def next_batch(self) -> list[JobRecord]:
        """Wait for jobs, and set those that can be done together to running: the first ones that
        all add, or all delete. Empty: the address ends.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._waiting())
            if self._closed:
                return []
            waiting = self._waiting()
            first = waiting[0].action
            batch = [
                job.with_state("running")
                for job in takewhile(lambda job: job.action == first, waiting)
            ]
            self._save(self.content.with_jobs(*batch))
            return batch

    @property
    def num_waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._waiting())

    def _waiting(self) -> list[JobRecord]:
        return [job for job in self.content.jobs if job.state == "waiting"]

    def note_made(self, reference: str) -> None:
        """Remember an artifact before it is begun, so that its remains can be removed."""
        with self._condition:
            made = tuple(dict.fromkeys([*self.content.made, reference]))
            self._save(self.content.with_jobs(made=made))

    def swap(self, batch: Sequence[JobRecord], held: HeldDocuments, engine: Engine) -> None:
        """End a batch whose artifacts are made, and serve them.

        Args:
            held: the documents of the new generation.
            engine: its engine, which answers later requests.
        """
        with self._condition:
            content = self.content
            gone = {job.document for job in batch if job.action == "delete"}
            deleted = tuple(name for name in content.deleted if name not in gone)
            generation = content.generation + 1
            ended = [job.with_state("done", generation=generation) for job in batch]
            artifacts = {role: artifact.reference for role, artifact in held.read.items()}
            self._save(
                content.with_jobs(
                    *ended, deleted=deleted, generation=generation, artifacts=artifacts
                )
            )
            # Documents that were deleted meanwhile are hidden before anybody is answered.
            engine.hide(held.rows_of(deleted))
            self._held = held
            self._serving.swap(engine)
            self._ledger.remove_texts(ended)

    def update(self, *jobs: JobRecord, **fields: Any) -> None:
        """Change jobs, or other fields of the ledger."""
        with self._condition:
            self._save(self.content.with_jobs(*jobs, **fields))
            self._ledger.remove_texts(job for job in jobs if job.ended is not None)

    def close(self) -> None:
        """Begin no further job."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    @property
    def closed(self) -> bool:
        """Whether the address ends."""
        return self._closed


def check_name(name: str) -> None:
    """Raises: Refusal for a name that no document may have."""
    if not name or name != name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise invalid(
            f"name: 1 to {MAX_NAME} printable characters are needed, without space around them.",
            "name",
        )
