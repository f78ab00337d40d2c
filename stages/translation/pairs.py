"""Pairs of sentences that rows of a datastore are of, as text."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import is_updated, split_of
from stages.text.excerpt import TokenText


@dataclass(frozen=True)
class PairTexts:
    """The text of a datastore's rows, pair by pair."""

    rows: DatastoreRows
    text: TokenText

    def of_row(self, row: int) -> dict[str, Any]:
        """The pair that a row is a token of: its number, both sides, and how much of the target stands before it.

        The source is None where the datastore does not know it any more.
        """
        offsets = self.rows.doc_offsets
        pair = int(np.searchsorted(offsets, row, side="right")) - 1
        begin, end = offsets[pair : pair + 2].tolist()
        ids = np.asarray(self.rows.text.ids[begin:end]).tolist()
        pieces = self.text.pieces(ids[:-1])
        before = "".join(pieces[: row - begin])
        return {"row": row, "pair": pair, "source": self._source(pair), "target": "".join(pieces), "before": before}

    def _source(self, pair: int) -> str | None:
        if self._sources is None:
            return None
        ids, offsets = self._sources
        begin, end = (int(place) for place in offsets[pair : pair + 2])
        return self.text.decoded(np.asarray(ids[begin : end - 1]).tolist())

    @cached_property
    def _sources(self) -> tuple[Any, Any] | None:
        """Tokens of the source side, and where its sentences begin; None where rows are of several splits."""
        datastore = self.rows.datastore
        if is_updated(datastore):
            return None
        arrays, split = datastore.input("corpus").zarr("tokens.zarr"), split_of(datastore)
        return arrays[f"{split}/source_ids"], arrays[f"{split}/source_offsets"]
