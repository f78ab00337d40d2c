"""Receipts of forgetting: what held the documents, what was replaced, and what remains. They hold
no word of the text.

A receipt has names of documents, ids and digests of artifacts, and numbers of rows. A digest of the
text would reveal a short secret to whoever tries all of them, so there is none.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import write_atomically
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.manifest import InputRecord
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.forgetting.question import DocumentQuestion
from stages.forgetting.search import Answer, find_holders
from stages.forgetting.spans import Holding, RowSpan
from stages.forgetting.texts import StoredText, text_of_rows
from stages.reporting import Reporter
from stages.updating.change import resolve_documents


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reference(_Record):
    """An artifact with the digest of its bytes."""

    reference: str
    digest: str


class Replaced(_Record):
    """An artifact that held the documents, and one of the same work without them."""

    before: Reference
    after: Reference

    @property
    def references(self) -> tuple[str, str]:
        return self.before.reference, self.after.reference


class Check(_Record):
    """One look at the store."""

    when: str
    tokens_searched: int
    remains: tuple[Holding, ...]
    unread: dict[str, str]


class Receipt(_Record):
    """Record of documents that were forgotten."""

    receipt: Literal[1] = 1
    """Version of the format."""
    names: tuple[str, ...]
    """Names of the documents that were forgotten with all their parts."""
    documents: int
    rows: int
    """Rows of the datastore that were forgotten."""
    encoded_again: int
    """Rows whose keys were made again, because their windows had forgotten tokens."""
    places: dict[str, tuple[RowSpan, ...]]
    """Places of the documents in texts, by reference of the artifact."""
    held: tuple[Holding, ...]
    """Ways in which artifacts held the documents at the first check."""
    replaced: tuple[Replaced, ...]
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    """Looks at the store, the latest last."""

    @property
    def question(self) -> DocumentQuestion:
        """The question that the receipt answers."""
        return DocumentQuestion(frozenset(self.names), self.places)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a receipt. Raises: UsageError if there is no file, DataError if it is no receipt."""
        try:
            return cls.model_validate_json(path.read_text("utf-8"))
        except OSError as error:
            raise UsageError(f"The receipt {path} cannot be read: {error.strerror}.") from None
        except (ValidationError, UnicodeDecodeError):
            raise DataError(f"{path} is no receipt of memlm update-datastore --receipt.") from None

    def write(self, path: Path) -> None:
        """Write the receipt, in place of an earlier state of it."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False)
        write_atomically(path, text + "\n")


def require_receipt_file(path: Path) -> None:
    """Refuse a path at which no receipt may be written.

    Raises: UsageError if it is another's file, or in no folder.
    """
    if not path.parent.is_dir():
        raise UsageError(f"--receipt {path}: there is no folder {path.parent}.")
    if path.exists():
        try:
            Receipt.read(path)
        except (DataError, UsageError):
            raise UsageError(
                f"--receipt {path} is there, and is no receipt; name another file."
            ) from None


def receipt_of(datastore: Artifact, store: Store, reporter: Reporter) -> Receipt:
    """The receipt of a datastore that has just forgotten documents."""
    text = text_of_rows(datastore.input(PREVIOUS))
    num_documents = len(text.doc_offsets) - 1
    # A datastore keeps numbers in its settings, so no names are needed to read them.
    numbers = resolve_documents(datastore.config["forget"], (), num_documents).tolist()
    places = {text.artifact.reference: tuple(text.spans_of(numbers))}
    names = _names_gone(text, numbers)
    answer = find_holders(store, DocumentQuestion(names, places), reporter)
    return Receipt(
        names=tuple(sorted(names)),
        documents=len(numbers),
        rows=datastore.metrics["forgotten"],
        encoded_again=datastore.metrics["encoded_again"],
        places=places,
        held=answer.holdings,
        replaced=_replaced(store.artifacts(), answer.holdings, answer.holdings),
        checks=(_check(answer),),
    )


def checked_again(receipt: Receipt, store: Store, reporter: Reporter) -> tuple[Receipt, Answer]:
    """The receipt after another look at the store, and what was found."""
    answer = find_holders(store, receipt.question, reporter)
    replacements = {pair.references: pair for pair in receipt.replaced}
    for pair in _replaced(store.artifacts(), receipt.held, answer.holdings):
        replacements.setdefault(pair.references, pair)
    changed = {
        "replaced": tuple(replacements.values()),
        "checks": (*receipt.checks, _check(answer)),
    }
    return receipt.model_copy(update=changed), answer


def _names_gone(text: StoredText, numbers: Iterable[int]) -> frozenset[str]:
    """Names whose documents are all forgotten; the lines of a file may have one name."""
    forgotten = set(numbers)
    names = {text.names.of(number) for number in forgotten}
    gone = set()
    for name in names:
        if name is not None and forgotten.issuperset(text.documents_called({name})):
            gone.add(name)
    return frozenset(gone)


def _check(answer: Answer) -> Check:
    """A look at the store, which is now."""
    return Check(
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        tokens_searched=answer.tokens,
        remains=answer.holdings,
        unread=answer.unread,
    )


def _replaced(
    artifacts: Iterable[Artifact], earlier: Iterable[Holding], remains: Iterable[Holding]
) -> tuple[Replaced, ...]:
    """Artifacts that held documents, with those that were made in their place.

    An artifact takes the place of another if it was changed from it. It also does if both were
    made by one stage, from inputs that are the same or replace each other. It may hold copies.

    Args:
        artifacts: all artifacts, in the order in which they were made.
        earlier: what held the documents.
        remains: what holds them now.
    """
    records = {}
    for holding in earlier:
        if not holding.only_copies:
            record = Reference(reference=holding.reference, digest=holding.digest)
            records[holding.reference] = record
    holders = {holding.reference for holding in remains if not holding.only_copies}
    holders |= records.keys()

    all_artifacts = list(artifacts)
    old_artifacts = [artifact for artifact in all_artifacts if artifact.reference in records]
    free = [artifact for artifact in all_artifacts if artifact.reference not in holders]

    # Inputs come before what is made of them, so their successors are known by then.
    successors: dict[str, set[str]] = {}
    replaced = []
    for old in old_artifacts:
        for new in free:
            if _replaces(new, old, successors):
                successors.setdefault(old.reference, set()).add(new.reference)
                after = Reference(reference=new.reference, digest=new.digest)
                replaced.append(Replaced(before=records[old.reference], after=after))
    return tuple(replaced)


def _replaces(new: Artifact, old: Artifact, successors: Mapping[str, set[str]]) -> bool:
    """Whether an artifact was made in place of another; `successors`: those of earlier artifacts."""
    if old.matches(new.manifest.inputs.get(PREVIOUS)):
        return True

    new_inputs = _inputs_read(new)
    old_inputs = _inputs_read(old)
    same_stage = new.manifest.stage == old.manifest.stage
    if not same_stage or new_inputs.keys() != old_inputs.keys():
        return False

    # Made of the same inputs, one is no replacement of the other.
    changed = [role for role in new_inputs if new_inputs[role] != old_inputs[role]]
    if not changed:
        return False
    for role in changed:
        replacements = successors.get(old_inputs[role].reference, ())
        if new_inputs[role].reference not in replacements:
            return False
    return True


def _inputs_read(artifact: Artifact) -> dict[str, InputRecord]:
    """The inputs of an artifact, by role, without the one that was changed into it."""
    inputs = dict(artifact.manifest.inputs)
    inputs.pop(PREVIOUS, None)
    return inputs
