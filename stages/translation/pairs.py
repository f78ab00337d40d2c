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
        # The last token ends the target, and has no text.
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
        begin, end = np.asarray(offsets[pair : pair + 2]).tolist()
        tokens = np.asarray(ids[begin : end - 1])
        return self.text.decoded(tokens.tolist())


def pair_texts(read: Mapping[str, Artifact], text: TokenText) -> PairTexts:
    """Texts of the pairs to which neighbours belong: those of `similar-pairs`, if it is read, else
    the datastore's.

    Args:
        read: artifacts by role.
    """
    stored = neighbor_text(read)
    if stored is not None:
        group: Any = stored.tokens.zarr("tokens.zarr")[stored.split]
        offsets = np.asarray(group["doc_offsets"][:])
        return PairTexts(group["ids"], offsets, _sources(stored.tokens, stored.split), text)

    datastore = read["datastore"]
    rows = DatastoreRows(datastore)
    sources = None
    # After an update, rows come from several splits.
    if not is_updated(datastore):
        sources = _sources(datastore.input("corpus"), datastore.config["split"])
    return PairTexts(rows.text.ids, rows.doc_offsets, sources, text)


def _sources(tokens: Artifact, split: str) -> tuple[Any, Any]:
    """Tokens of the source side of a split, and offsets of its sentences."""
    arrays: Any = tokens.zarr("tokens.zarr")
    return arrays[f"{split}/source_ids"], arrays[f"{split}/source_offsets"]
