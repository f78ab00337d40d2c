"""Unfinished work that may hold a document: drafts of artifacts, and remains of a removal."""

import json
from collections.abc import Iterator, Set
from pathlib import Path

from stages.artifacts.durable import REMOVED
from stages.artifacts.garbage import unfinished
from stages.artifacts.kinds import KINDS
from stages.artifacts.store import Store
from stages.forgetting.question import DocumentQuestion
from stages.forgetting.spans import Holding, Way
from stages.text.spool import NAMES

HEAD = 200
"""Characters of a text that are looked for in the text of an interrupted tokenize."""


def drafts_that_hold(
    store: Store, question: DocumentQuestion, holders: Set[str]
) -> Iterator[Holding]:
    """Drafts that read a holder, or have the document's own text; and remains, which nobody reads.

    Args:
        holders: references of the artifacts that hold the document.
    """
    for draft in unfinished(store):
        if draft.inputs & holders or _has_text(draft.path, question):
            yield _unfinished(store, draft.path)
    for kind in KINDS:
        for folder in sorted(store.root.glob(f"{kind}/.*{REMOVED}")):
            yield _unfinished(store, folder)


def _unfinished(store: Store, folder: Path) -> Holding:
    return Holding(str(folder.relative_to(store.root)), "", Way.UNFINISHED)


def _has_text(draft: Path, question: DocumentQuestion) -> bool:
    """Whether a draft of tokens has read the document."""
    names = {json.dumps(name).encode() for name in question.names}
    for path in draft.rglob(NAMES):
        content = path.read_bytes()
        if any(name in content for name in names):
            return True

    if question.text is None:
        return False
    head = question.text.strip()[:HEAD].encode()
    return any(head in path.read_bytes() for path in draft.rglob("*.txt"))
