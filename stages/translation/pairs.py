"""Pairs of sentences that rows of a memory are of, as text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import PAIRS, PAIRS_SPLIT, is_updated, split_of
from stages.text.excerpt import TokenText


@dataclass(frozen=True)
class PairTexts:
    """The text of rows, pair by pair: row i is token i of `ids`, and pair p is the rows from `offsets[p]` on.

    `sources`: tokens of the source side, and where its sentences begin; None where they are not known any more.
    """

    ids: Any
    offsets: np.ndarray
    sources: tuple[Any, Any] | None
    text: TokenText

    def of_row(self, row: int) -> dict[str, Any]:
        """The pair that a row is a token of: its number, both sides, and how much of the target stands before it."""
        pair = int(np.searchsorted(self.offsets, row, side="right")) - 1
        begin, end = self.offsets[pair : pair + 2].tolist()
        ids = np.asarray(self.ids[begin:end]).tolist()
        pieces = self.text.pieces(ids[:-1])
        before = "".join(pieces[: row - begin])
        return {"row": row, "pair": pair, "source": self._source(pair), "target": "".join(pieces), "before": before}

    def _source(self, pair: int) -> str | None:
        if self.sources is None:
            return None
        ids, offsets = self.sources
        begin, end = (int(place) for place in offsets[pair : pair + 2])
        return self.text.decoded(np.asarray(ids[begin : end - 1]).tolist())


def pair_texts(read: Mapping[str, Artifact], text: TokenText) -> PairTexts:
    """The pairs that a translation's neighbours are rows of: those that are found, else the datastore's.

    Args:
        read: artifacts by role.
    """
    if PAIRS in read:
        arrays: Any = read[PAIRS].zarr("tokens.zarr")
        offsets = np.asarray(arrays[f"{PAIRS_SPLIT}/doc_offsets"][:])
        return PairTexts(arrays[f"{PAIRS_SPLIT}/ids"], offsets, _sources(read[PAIRS], PAIRS_SPLIT), text)
    datastore = read["datastore"]
    rows = DatastoreRows(datastore)
    known = not is_updated(datastore)  # else rows are of several splits
    sources = _sources(datastore.input("corpus"), split_of(datastore)) if known else None
    return PairTexts(rows.text.ids, rows.doc_offsets, sources, text)


def _sources(tokens: Artifact, split: str) -> tuple[Any, Any]:
    arrays: Any = tokens.zarr("tokens.zarr")
    return arrays[f"{split}/source_ids"], arrays[f"{split}/source_offsets"]
