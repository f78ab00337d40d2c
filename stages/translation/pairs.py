"""Text of the sentence pairs to which rows of a memory belong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import is_updated
from stages.retrieval.inputs import neighbor_text
from stages.text.excerpt import TokenText


@dataclass(frozen=True)
class PairTexts:
    """Text of rows by pair: row i is token i of `ids`, and pair p has the rows from `offsets[p]` to
    `offsets[p + 1]`.

    `sources`: tokens of the source side, and offsets of its sentences; None if they are not known
    any more.
    """

    ids: Any
    offsets: np.ndarray
    sources: tuple[Any, Any] | None
    text: TokenText

    def of_row(self, row: int) -> dict[str, Any]:
        """The pair that has a row as a token: its number, both sides, and the part of the target
        before the token.
        """
        pair = int(np.searchsorted(self.offsets, row, side="right")) - 1
        begin, end = self.offsets[pair : pair + 2].tolist()
        ids = np.asarray(self.ids[begin:end]).tolist()
        pieces = self.text.pieces(ids[:-1])
        before = "".join(pieces[: row - begin])
        return {
            "row": row,
            "pair": pair,
            "source": self._source(pair),
            "target": "".join(pieces),
            "before": before,
        }

    def _source(self, pair: int) -> str | None:
        if self.sources is None:
            return None
        ids, offsets = self.sources
        begin, end = (int(place) for place in offsets[pair : pair + 2])
        return self.text.decoded(np.asarray(ids[begin : end - 1]).tolist())


def pair_texts(read: Mapping[str, Artifact], text: TokenText) -> PairTexts:
    """Texts of the pairs to which neighbours belong: those of `similar-pairs`, if it is read, else
    the datastore's.

    Args:
        read: artifacts by role.
    """
    stored = neighbor_text(read)
    if stored is not None:
        arrays: Any = stored.tokens.zarr("tokens.zarr")
        offsets = np.asarray(arrays[f"{stored.split}/doc_offsets"][:])
        ids = arrays[f"{stored.split}/ids"]
        return PairTexts(ids, offsets, _sources(stored.tokens, stored.split), text)
    datastore = read["datastore"]
    rows = DatastoreRows(datastore)
    has_one_split = not is_updated(datastore)  # after an update, rows come from several splits
    sources = (
        _sources(datastore.input("corpus"), datastore.config["split"]) if has_one_split else None
    )
    return PairTexts(rows.text.ids, rows.doc_offsets, sources, text)


def _sources(tokens: Artifact, split: str) -> tuple[Any, Any]:
    arrays: Any = tokens.zarr("tokens.zarr")
    return arrays[f"{split}/source_ids"], arrays[f"{split}/source_offsets"]
