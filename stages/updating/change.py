"""A change of a datastore: the documents that go, and the split that is added."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.stage import Inputs
from stages.lineage.forgetting import documents_meant
from stages.lineage.rows import DatastoreRows
from stages.lineage.runs import KeptRows
from stages.updating.changed_rows import RowTables
from stages.updating.config import UpdateConfig


@dataclass(frozen=True)
class Change:
    """Whose the rows of a datastore are before and after a change; arrays are computed when they are asked for."""

    before: RowTables
    forgotten: np.ndarray
    """Numbers of the documents that go, int64 [F]."""
    tokens: Artifact | None
    """Tokens with the split that is added; None: none is."""
    split: str | None

    @classmethod
    def of(cls, config: UpdateConfig, inputs: Inputs) -> "Change":
        """The one that resolved settings ask for."""
        before = RowTables.of(DatastoreRows(inputs[PREVIOUS]))
        forgotten = documents_meant(config.forget, (), before.documents)
        return cls(before, forgotten, inputs.artifacts.get(ADDED), config.split)

    @cached_property
    def kept(self) -> KeptRows:
        """Which rows stay."""
        return KeptRows.of_documents(self.before.doc_offsets, self.forgotten)

    @cached_property
    def left(self) -> RowTables:
        """Whose the rows that stay are."""
        return self.before.without(self.forgotten)

    @cached_property
    def after(self) -> RowTables:
        """Whose all rows are: those that stay, then those that are added."""
        if self.tokens is None:
            return self.left
        assert self.split is not None
        return self.left.followed_by(self.tokens, self.split)
