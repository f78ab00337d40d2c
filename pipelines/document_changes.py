"""Documents are added to memories, or leave them: new artifacts are made from those before.

A datastore is changed by `update-datastore`, its index by `build-index --update`. The text of an
exact index is spelled out and tokenized again, since its files need not be there any more. Then its
contexts are sorted by `build-index --index exact --update`, which keeps the order of old ones.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.catalogue import config_of, stage_of
from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import write_atomically
from stages.artifacts.make import make
from stages.artifacts.resolved_work import plan
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.forgetting.texts import StoredText, text_of_rows
from stages.lineage.corpus import token_text
from stages.lineage.indexes import EXACT, NONE, TEXT, holds_all
from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import tokenizer_of
from stages.registry import load
from stages.reporting import Reporter
from stages.serving.ledger import DocumentChange
from stages.text.config import GIVEN
from stages.text.tokens import open_split
from stages.updating.change import spelled_numbers

CAN_BECOME = "stages.indexing.change:can_become"
"""Location of a check that needs FAISS."""
ADDED_SPLIT = "train"
TOKENIZER = "tokenizer"
"""Role of the tokens whose tokenizer others have."""


@dataclass(frozen=True)
class Workshop:
    """Where artifacts are made, and who hears of each before it is begun."""

    store: Store
    execution: Execution
    scratch: Path
    """Folder for texts that are spelled out; they are removed again."""
    announce: Callable[[str], None]
    """Receives the reference of an artifact that is not in the store yet."""

    def make(self, command: str, settings: Mapping[str, Any], **references: Any) -> Artifact:
        """The artifact of a command; one that is there already is used as it is."""
        stage = stage_of(command)
        config = config_of(command)(**settings)
        work = plan(stage, config, references, self.store, self.execution)
        if not self.store.has(work.kind, work.id):
            self.announce(work.reference)
        return make(stage, config, references, self.store, self.execution).artifact


class ChangeableMemory(ABC):
    """A memory of an evaluation whose documents can change."""

    roles: tuple[str, ...]
    """Roles of its artifacts among those that are read; the first holds the rows."""

    @abstractmethod
    def text(self, read: Mapping[str, Artifact]) -> StoredText:
        """Its text, whose tokens are the rows."""

    @abstractmethod
    def changed(
        self, read: Mapping[str, Artifact], change: DocumentChange, workshop: Workshop
    ) -> dict[str, Artifact]:
        """Its artifacts after a change, by role.

        Raises: the errors of the stages; ArtifactError for a memory that cannot be changed.
        """


class StoredKeys(ChangeableMemory):
    """A datastore and its index."""

    roles = ("datastore", "index")

    def text(self, read: Mapping[str, Artifact]) -> StoredText:
        return text_of_rows(read["datastore"])

    def changed(
        self, read: Mapping[str, Artifact], change: DocumentChange, workshop: Workshop
    ) -> dict[str, Artifact]:
        datastore = read["datastore"]
        index = read["index"]
        if not holds_all(index):
            raise ArtifactError(
                f"{index.reference} leaves rows out, so it cannot be changed: serve an index of all."
            )
        settings: dict[str, Any] = {}
        references = {"source": datastore.reference}
        if change.forgotten:
            stored = len(DatastoreRows(datastore).doc_offsets) - 1
            named = self.text(read).documents_called(change.forgotten)
            # A datastore may have rows of the first part of its corpus alone.
            numbers = [number for number in named if number < stored]
            if not numbers:
                return {"datastore": datastore, "index": index}
            settings["forget"] = spelled_numbers(np.array(numbers))
        if change.added:
            tokens = _tokenized(change.added, tokenizer_of(datastore), ADDED_SPLIT, workshop)
            references["add"] = tokens.reference
        after = workshop.make("update-datastore", settings, **references)
        before = index.reference if load(CAN_BECOME)(index, after) else NONE
        changed = workshop.make("build-index", index.config, source=after.reference, update=before)
        return {"datastore": after, "index": changed}


class SortedContexts(ChangeableMemory):
    """An exact index, with its text."""

    roles = (EXACT,)

    def text(self, read: Mapping[str, Artifact]) -> StoredText:
        index = read[EXACT]
        return StoredText(index.input(TEXT), str(index.config["split"]))

    def changed(
        self, read: Mapping[str, Artifact], change: DocumentChange, workshop: Workshop
    ) -> dict[str, Artifact]:
        index = read[EXACT]
        text = self.text(read)
        gone = set(text.documents_called(change.forgotten))
        if change.forgotten and not gone:
            return {EXACT: index}
        staying = [number for number in range(len(text.doc_offsets) - 1) if number not in gone]
        spelled = workshop.scratch / "spelled.jsonl"
        try:
            write_atomically(spelled, "".join(_lines(text, staying)))
            files = (spelled, *change.added)
            tokens = _tokenized(files, _first_tokens(text.artifact), text.part, workshop)
            _require_same_tokens(text, staying, tokens)
        finally:
            spelled.unlink(missing_ok=True)
        settings = {"index": EXACT, "split": text.part}
        changed = workshop.make(
            "build-index", settings, source=tokens.reference, update=index.reference
        )
        return {EXACT: changed}


CHANGEABLE: tuple[ChangeableMemory, ...] = (StoredKeys(), SortedContexts())
"""Memories whose documents can change."""


@dataclass(frozen=True)
class DocumentStages:
    """The stages that change the documents of an address; see `stages.serving.changes`."""

    store: Store
    execution: Execution

    def artifacts(self, read: Mapping[str, Artifact]) -> dict[str, Artifact]:
        """The artifacts of the memories whose documents can change, by role."""
        roles = [role for memory in _changeable(read) for role in memory.roles]
        return {role: read[role] for role in roles}

    def texts(self, read: Mapping[str, Artifact]) -> dict[str, StoredText]:
        """The texts of the memories whose documents can change, by the role of their rows.

        Args:
            read: artifacts by role, as an evaluation reads them.
        """
        return {memory.roles[0]: memory.text(read) for memory in _changeable(read)}

    def change(
        self,
        read: Mapping[str, Artifact],
        change: DocumentChange,
        scratch: Path,
        announce: Callable[[str], None],
        reporter: Reporter,
    ) -> dict[str, Artifact]:
        """The artifacts of all memories after a change, by role; see `Workshop`."""
        execution = replace(self.execution, reporter=reporter)
        workshop = Workshop(self.store, execution, scratch, announce)
        changed: dict[str, Artifact] = {}
        for memory in _changeable(read):
            changed |= memory.changed(read, change, workshop)
        return changed


def _changeable(read: Collection[str]) -> list[ChangeableMemory]:
    """The memories among artifacts, by their roles, whose documents can change."""
    return [memory for memory in CHANGEABLE if memory.roles[0] in read]


def _tokenized(
    files: Sequence[Path], tokenizer: Artifact, split: str, workshop: Workshop
) -> Artifact:
    """Tokens of files, as one split."""
    named: dict[str, Any] = {split: [str(file) for file in files]}
    return workshop.make("tokenize", {"tokenizer": GIVEN}, tokenizer=tokenizer.reference, **named)


def _first_tokens(tokens: Artifact) -> Artifact:
    """The tokens whose tokenizer was taken over.

    Tokens need those whose tokenizer they have. An earlier generation, with documents that are
    deleted since, must not be needed.
    """
    first = tokens
    while TOKENIZER in first.manifest.inputs:
        first = first.input(TOKENIZER)
    return first


def _lines(text: StoredText, documents: Sequence[int]) -> list[str]:
    """Documents as JSON lines."""
    tokenizer = token_text(text.tokens)
    lines = []
    for number in documents:
        ids = text.document(number).tolist()
        # The end of a document is a token that its text does not have.
        if ids and ids[-1] == tokenizer.eos and not tokenizer.eos_is_newline:
            ids = ids[:-1]
        name = text.names.of(number) or f"unnamed-{number}"
        content = {"name": name, "text": "".join(tokenizer.pieces(ids))}
        lines.append(json.dumps(content) + "\n")
    return lines


def _require_same_tokens(text: StoredText, staying: Sequence[int], tokens: Artifact) -> None:
    """Check that new tokens begin with the documents that stay, id by id. Raises: ArtifactError."""
    after = open_split(tokens.zarr("tokens.zarr"), text.part)
    offsets = np.asarray(after.doc_offsets[:])
    parts = [text.document(number) for number in staying]
    if len(offsets) > len(staying):
        ids = np.asarray(after.ids[: offsets[len(staying)]])
        lengths = np.cumsum([0, *map(len, parts)])
        same_ends = np.array_equal(lengths, offsets[: len(staying) + 1])
        if same_ends and np.array_equal(ids, np.concatenate(parts)):
            return
    raise ArtifactError(
        f"The documents of {text.artifact.reference} have other tokens when their text is read again, so an exact "
        "index of it cannot be changed: tokenize the changed files, and build the index anew."
    )
