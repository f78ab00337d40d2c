"""Texts that artifacts store: the splits of tokens, and the rows of changed datastores."""

import json
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.forgetting.spans import RowSpan
from stages.forgetting.windows import Windows, joined_ranges, shared_ranges
from stages.lineage import sources
from stages.lineage.corpus import tokenizer_digest
from stages.lineage.rows import GROUP, ROWS
from stages.text.documents import DocumentNames, NamedRun, names_file, read_runs

FEW_NAMES = 20
"""Names that are looked for in the bytes of a file before its lines are parsed."""


@dataclass(frozen=True)
class StoredText:
    """A text with its documents: `part` is a split of tokens, or `rows` of a changed datastore."""

    artifact: Artifact
    part: str

    @cached_property
    def tokens(self) -> Artifact:
        """The tokens artifact with the tokenizer of its ids."""
        return self.artifact if self.part != ROWS else sources.tokenizer_of(self.artifact)

    @property
    def tokenizer(self) -> str:
        """Digest of the tokenizer."""
        return tokenizer_digest(self.tokens)

    @property
    def _group(self) -> Any:
        """Arrays of the text, by the names that tokens give them."""
        if self.part != ROWS:
            return self.artifact.zarr("tokens.zarr")[self.part]
        return self.artifact.zarr(GROUP)

    @property
    def ids(self) -> Any:
        """Integers [T], read when sliced."""
        return self._group["values" if self.part == ROWS else "ids"]

    @property
    def length(self) -> int:
        """Number of its tokens."""
        return int(self.ids.shape[0])

    @cached_property
    def doc_offsets(self) -> np.ndarray:
        """Start of each document, and the end, int64 [D + 1]."""
        return np.asarray(self._group["doc_offsets"][:])

    @property
    def names_path(self) -> Path:
        """File with the names of its documents; artifacts without names have none."""
        return self.artifact.path / names_file(self.part)

    @cached_property
    def runs(self) -> list[NamedRun]:
        """Names of its documents, as runs."""
        return list(read_runs(self.names_path)) if self.names_path.is_file() else []

    @cached_property
    def names(self) -> DocumentNames:
        """Names of its documents, by number."""
        return DocumentNames(self.runs)

    def may_name(self, names: Set[str]) -> bool:
        """Whether a document may have one of these names; False is certain."""
        if not names or not self.names_path.is_file():
            return False
        if len(names) > FEW_NAMES:
            return True
        content = self.names_path.read_bytes()
        return any(json.dumps(name).encode() in content for name in names)

    def documents_called(self, names: Set[str]) -> list[int]:
        """Numbers of the documents with one of these names, rising."""
        if not self.may_name(names):
            return []
        numbers: list[int] = []
        first = 0
        for run in self.runs:
            if run.name in names:
                numbers += range(first, first + run.documents)
            first += run.documents

        # A file of names may go on behind the documents that are stored.
        num_documents = len(self.doc_offsets) - 1
        return [number for number in numbers if number < num_documents]

    def documents_between(self, start: int, stop: int) -> range:
        """Numbers of the documents of tokens [start, stop)."""
        first, last = np.searchsorted(self.doc_offsets, [start, stop - 1], side="right") - 1
        return range(int(first), int(last) + 1)

    def document(self, number: int) -> np.ndarray:
        """Tokens of a document, integers [T]."""
        start, stop = self.doc_offsets[number : number + 2].tolist()
        return np.asarray(self.ids[start:stop])

    def spans_of(self, documents: Iterable[int]) -> Iterator[RowSpan]:
        """Spans of whole documents; consecutive ones of one name are one span."""
        spans: list[RowSpan] = []
        for number in documents:
            start, stop = self.doc_offsets[number : number + 2].tolist()
            name = self.names.of(number)
            if spans:
                previous = spans[-1]
                if previous.stop == start and previous.document == name:
                    # The document lengthens the span before it.
                    start = previous.start
                    spans.pop()
            spans.append(RowSpan(self.part, start, stop, name))

        # An empty document has no rows.
        yield from (span for span in spans if span.rows)

    def shared(self, sought: Sequence[Windows], whole: Iterable[int]) -> Iterator[RowSpan]:
        """Spans of tokens that windows cover, outside the documents `whole`; all are copies."""
        originals = set(whole)
        offsets = self.doc_offsets
        covered = [shared_ranges(self.ids, offsets, windows) for windows in sought]
        for start, stop in joined_ranges(covered, offsets).tolist():
            document = int(np.searchsorted(offsets, start, side="right")) - 1
            if document not in originals:
                yield RowSpan(self.part, start, stop, self.names.of(document), is_copy=True)


def stored_texts(artifact: Artifact) -> list[StoredText]:
    """The texts that an artifact stores itself; its arrays are read on demand.

    A datastore of build-datastore stores none: its rows are tokens of its corpus.
    """
    if artifact.kind == "tokens":
        return [StoredText(artifact, split) for split in artifact.metrics["splits"]]
    if artifact.kind == "datastore" and sources.is_updated(artifact):
        return [StoredText(artifact, ROWS)]
    return []


def text_of_rows(datastore: Artifact) -> StoredText:
    """The text of a datastore's rows; of build-datastore it is the whole split of its corpus."""
    if sources.is_updated(datastore):
        return StoredText(datastore, ROWS)
    return StoredText(datastore.input("corpus"), str(datastore.config["split"]))
