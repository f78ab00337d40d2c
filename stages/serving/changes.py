"""The thread that carries out changes of documents: artifacts are made, opened and swapped.

Whatever it has made is noted in the ledger before, so that a process which is killed leaves nothing
that a later one does not find. Artifacts of earlier generations are removed once nobody reads them.
"""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from stages.artifacts.artifact import Artifact, needed_for
from stages.artifacts.durable import remove_folder
from stages.artifacts.references import split_reference
from stages.artifacts.store import Store
from stages.errors import MemlmError
from stages.forgetting.question import DocumentQuestion
from stages.forgetting.search import find_holders
from stages.forgetting.spans import Holding
from stages.forgetting.texts import StoredText
from stages.reporting import Reporter, Silent
from stages.serving.documents import Documents
from stages.serving.engine import Engine, ServedMemories
from stages.serving.guard import anonymous
from stages.serving.held import HeldDocuments
from stages.serving.ledger import DocumentChange, JobRecord, Ledger
from stages.serving.served import Serving
from stages.serving.settings import REQUEST_SECONDS

LOOK_SECONDS = 0.2
"""Time between two looks at whether an earlier generation is still read."""
CLOSE_SECONDS = 10.0


class DocumentStages(Protocol):
    """The stages that change documents; `pipelines.document_changes` has them."""

    def artifacts(self, read: Mapping[str, Artifact]) -> dict[str, Artifact]:
        """The artifacts of memories whose documents can change, by role."""

    def texts(self, read: Mapping[str, Artifact]) -> dict[str, StoredText]:
        """The texts whose documents can change, by the role of their rows."""

    def change(
        self,
        read: Mapping[str, Artifact],
        change: DocumentChange,
        scratch: Path,
        announce: Callable[[str], None],
        reporter: Reporter,
    ) -> dict[str, Artifact]:
        """Artifacts after a change, by role; `announce` receives each that is begun."""


@dataclass(frozen=True)
class ChangingMemories:
    """Memories whose documents can change, and the ledger of what has become of them."""

    memories: ServedMemories
    stages: DocumentStages
    store: Store
    ledger: Ledger

    @classmethod
    def of(cls, memories: ServedMemories, stages: DocumentStages, store: Store) -> Self:
        """Raises: ArtifactError for a damaged ledger."""
        return cls(memories, stages, store, Ledger(store, stages.artifacts(memories.resolved.read)))

    def replacing(self) -> dict[str, Artifact]:
        """The artifacts that are read instead of the first ones, by role.

        Raises: ArtifactError if one is gone or damaged.
        """
        artifacts = self.ledger.content.artifacts
        return {role: self.store.get(reference) for role, reference in artifacts.items()}

    def read(self) -> dict[str, Artifact]:
        """All artifacts of the generation, by role."""
        return {**self.memories.resolved.read, **self.replacing()}

    def held(self) -> HeldDocuments:
        """The documents of the generation."""
        read = self.read()
        return HeldDocuments(self.stages.texts(read), read)

    def open(self) -> Engine:
        """Open the generation; deleted documents are hidden."""
        content = self.ledger.content
        engine = self.memories.open(self.replacing(), content.generation)
        if content.deleted:
            engine.hide(self.held().rows_of(content.deleted))
        return engine


class Ending(Exception):
    """The address ends; the artifact that is being made can be resumed."""


class StoppedReporter(Silent):
    """Raises `Ending` between two shards once the address ends."""

    def __init__(self, ends: Callable[[], bool]) -> None:
        self._ends = ends

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        if self._ends():
            raise Ending


class DocumentChanges:
    """Carries out jobs, one batch after another."""

    def __init__(
        self, changing: ChangingMemories, serving: Serving, log: Callable[[str], None]
    ) -> None:
        """Args:
        changing: its ledger is owned by this process.
        serving: serves the generation of the ledger.
        """
        self._changing = changing
        self._memories = changing.memories
        self._ledger = changing.ledger
        self._stages = changing.stages
        self._store = changing.store
        self._serving = serving
        self._log = log
        self.documents = Documents(serving, changing.ledger, changing.held())
        self._earlier: list[weakref.ref[Engine]] = []
        self._thread = threading.Thread(target=self._run, name="memlm-documents", daemon=True)

    def start(self) -> None:
        """Begin with the jobs that wait."""
        self._thread.start()

    def close(self) -> None:
        """End after the shard under way, or in ten seconds."""
        self.documents.close()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            # Work that was interrupted goes on; what it does not use is removed behind it.
            if not self.documents.num_waiting:
                self._tidy()
            while batch := self.documents.next_batch():
                self._carry_out(batch)
                self._tidy()
        except Ending:
            return
        except Exception as error:
            self._log(anonymous(error))

    def _carry_out(self, batch: Sequence[JobRecord]) -> None:
        """Do the jobs of a batch; if it fails, they say why."""
        try:
            self._change(batch)
        except Ending:
            raise
        except Exception as error:
            is_expected = isinstance(error, MemlmError | OSError)
            message = (
                str(error)
                if is_expected
                else "An internal error, which the server's log describes."
            )
            if not is_expected:
                self._log(anonymous(error))
            failed = [job.with_state("failed", message=message) for job in batch]
            self.documents.update(*failed)

    def _change(self, batch: Sequence[JobRecord]) -> None:
        before = self._changing.read()
        change = DocumentChange()
        if batch[0].action == "add":
            change = DocumentChange(added=tuple(map(self._ledger.text_file, batch)))
        else:
            change = DocumentChange(frozenset(job.document for job in batch))
        reporter = StoppedReporter(lambda: self.documents.closed)
        changed = self._stages.change(
            before, change, self._ledger.texts, self.documents.note_made, reporter
        )
        engine = self._serving.model.engine
        after = self._memories.open(changed, engine.generation + 1, engine.model)
        texts = self._stages.texts({**before, **changed})
        self.documents.swap(batch, HeldDocuments(texts, changed), after)
        self._earlier.append(weakref.ref(engine))

    # Afterwards

    def _tidy(self) -> None:
        """Remove what earlier generations were made of, and write the receipts that are owed."""
        owed = [
            job
            for job in self.documents.content.jobs
            if job.action == "delete" and job.state == "done" and job.receipt is None
        ]
        self._await_last_readers()
        removed = self._remove_unused()
        if owed:
            receipt = self._receipt(owed, removed)
            self.documents.update(*(job.model_copy(update={"receipt": receipt}) for job in owed))

    def _await_last_readers(self) -> None:
        """Wait until no request reads an earlier generation; each request has limited time."""
        end = time.monotonic() + REQUEST_SECONDS
        while time.monotonic() < end and not self.documents.closed:
            gc.collect()
            self._earlier = [reference for reference in self._earlier if reference() is not None]
            if not self._earlier:
                return
            time.sleep(LOOK_SECONDS)

    def _remove_unused(self) -> list[str]:
        """Remove artifacts that this address made, and that nothing needs now; returns them."""
        content = self.documents.content
        made = set(content.made)
        artifacts = self._store.artifacts()
        named = {
            f"{kind}/{id}"
            for kind in {artifact.kind for artifact in artifacts}
            for id in self._store.names(kind).values()
        }
        others = [artifact.reference for artifact in artifacts if artifact.reference not in made]
        needed = needed_for([*others, *content.artifacts.values(), *named], artifacts)
        unused = [reference for reference in content.made if reference not in needed]
        removed = []
        for reference in unused:
            parts = split_reference(reference)
            assert parts is not None, "the ledger has references of artifacts"
            remove_folder(self._store.draft_folder(*parts))
            if self._store.folder(*parts).is_dir():
                self._store.remove(reference)
                removed.append(reference)
        if unused:
            self.documents.update(
                made=tuple(reference for reference in content.made if reference in needed)
            )
        return removed

    def _receipt(self, jobs: Sequence[JobRecord], removed: Sequence[str]) -> dict[str, Any]:
        """The outcome of a deletion: artifacts that still hold the documents under their names."""
        names = frozenset(job.document for job in jobs)
        answer = find_holders(self._store, DocumentQuestion(names), Silent())
        return {
            "serves": dict(self.documents.content.artifacts),
            "removed": list(removed),
            "remains": [_held(holding) for holding in answer.holdings],
            "unread": dict(answer.unread),
            "tokens_searched": answer.tokens,
        }


def _held(holding: Holding) -> dict[str, Any]:
    """A way in which an artifact holds a document, without a word of its text."""
    return {
        "reference": holding.reference,
        "way": str(holding.way),
        "copies": holding.only_copies,
        "rows": [[span.part, span.start, span.stop] for span in holding.spans],
        "files": list(holding.files),
    }
