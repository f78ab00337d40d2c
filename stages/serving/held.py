"""The documents that a generation holds: their names, and their rows in each memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.forgetting.spans import clipped
from stages.forgetting.texts import StoredText


@dataclass(frozen=True)
class HeldDocuments:
    """Documents of one generation.

    `texts` and `read`: texts and artifacts by the role of the rows.
    """

    texts: Mapping[str, StoredText]
    read: Mapping[str, Artifact]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of documents of each name, in the order of the texts; a memory may lack some."""
        counts: dict[str, int] = {}
        for text in self.texts.values():
            in_text: dict[str, int] = {}
            for run in text.runs:
                if run.name is not None:
                    in_text[run.name] = in_text.get(run.name, 0) + run.documents
            for name, number in in_text.items():
                counts[name] = max(number, counts.get(name, 0))
        return counts

    def rows_of(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Ranges of rows of the documents with these names, by role, int64 [h, 2]."""
        chosen = set(names)
        return {role: self._rows(role, chosen) for role in self.texts}

    def _rows(self, role: str, names: set[str]) -> np.ndarray:
        text = self.texts[role]
        spans = text.spans_of(text.documents_called(names))
        inside = clipped(spans, 0, int(self.read[role].metrics["rows"]))
        return np.array([span[1:3] for span in inside], np.int64).reshape(-1, 2)

    def would_be_left(self, names: Iterable[str]) -> bool:
        """Whether each memory has a row of another document, with a name or without."""
        rows = self.rows_of(names)
        return all(
            int(np.diff(ranges).sum()) < self.read[role].metrics["rows"]
            for role, ranges in rows.items()
        )
