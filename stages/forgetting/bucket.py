"""Copies in a bucket that hold a document: those of local holders, and those that are only there."""

import json
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from stages.artifacts.artifact import reached
from stages.artifacts.bucket import FOLDER, Bucket
from stages.artifacts.copies import Copy
from stages.artifacts.kinds import USED_UP
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.forgetting.question import DocumentQuestion
from stages.forgetting.search import Answer
from stages.forgetting.spans import Holding, Way

NAMES = "names/"
"""Folder of the names of documents, in tokens and in changed datastores."""
MOST_BYTES = 1 << 30
"""Bytes of the largest file of names that is read."""


def open_bucket(url: str) -> Bucket:
    """A bucket that is only read. Raises: UsageError if it is not at hand."""
    folder = Path(url.removeprefix(FOLDER))
    # A bucket that is a folder would be made.
    if url.startswith(FOLDER) and not folder.is_dir():
        raise UsageError(f"--bucket {url}: there is no folder {folder}.")
    return Bucket(url)


def held_in_bucket(
    bucket: Bucket, store: Store, question: DocumentQuestion, answer: Answer
) -> tuple[Holding, ...]:
    """Copies that hold a document.

    A copy of a local artifact holds what that holds. Of others only names and inputs are read, so
    their rows are not known, and a text that is only there is not searched.

    Args:
        answer: the answer of the store.
    Raises: UsageError if the bucket does not answer.
    """
    try:
        copies = {copy.reference: copy for copy in Copy.all(bucket)}
        holdings = list(_of_local(copies, answer))
        holders = {holding.reference for holding in holdings}
        # Copies that were not looked at in the store.
        remote = {}
        for reference, copy in copies.items():
            if not _is_local(copy, store):
                remote[reference] = copy

        # Those with a document of the question, by reference or by name.
        named = remote.keys() & question.spans.keys()
        for reference, copy in remote.items():
            if _has_name(copy, question.names):
                named.add(reference)
        for reference in sorted(named - holders):
            holdings.append(_holding(remote[reference], Way.TEXT))

        # Those that were made from a holder.
        derived = _made_from(named | holders, copies) & remote.keys()
        for reference in sorted(derived - named):
            holdings.append(_holding(remote[reference], Way.DERIVED))
    except DataError as error:
        raise UsageError(f"--bucket {bucket.url} is not at hand: {error}") from error
    return tuple(_in_bucket(bucket, holding) for holding in holdings)


def _in_bucket(bucket: Bucket, holding: Holding) -> Holding:
    """The holding, under its address in the bucket."""
    address = f"{bucket.url}/{holding.reference}"
    return Holding(address, holding.digest, holding.way, holding.spans, holding.files)


def _of_local(copies: Mapping[str, Copy], answer: Answer) -> Iterator[Holding]:
    """Holdings of the local artifacts that have a copy with the same bytes."""
    for holding in answer.holdings:
        copy = copies.get(holding.reference)
        if copy is not None and copy.manifest.digest == holding.digest:
            yield holding


def _is_local(copy: Copy, store: Store) -> bool:
    """Whether the store has the same artifact, so that it was looked at."""
    manifest = copy.manifest
    if not store.has(manifest.kind, manifest.id):
        return False
    return store.open(copy.reference).matches(manifest.record)


def _has_name(copy: Copy, names: Set[str]) -> bool:
    """Whether a document of a copy has one of these names."""
    # Without names, no file is worth reading.
    if not names:
        return False
    json_names = [json.dumps(name).encode() for name in names]
    for file in copy.manifest.files:
        if not file.startswith(NAMES):
            continue
        content = copy.bucket.read(copy.name(file), MOST_BYTES) or b""
        if any(name in content for name in json_names):
            return True
    return False


def _made_from(references: Set[str], copies: Mapping[str, Copy]) -> set[str]:
    """References of the copies that were made from these, directly or not."""
    below: dict[str, set[str]] = {}
    for copy in copies.values():
        for role, record in copy.manifest.inputs.items():
            if role not in USED_UP:
                below.setdefault(record.reference, set()).add(copy.reference)
    return reached(references, below) - references


def _holding(copy: Copy, way: Way) -> Holding:
    return Holding(copy.reference, copy.manifest.digest, way)
