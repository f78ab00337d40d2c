"""The text that a model and datastores were made of, to be counted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.results.pieces import Pieces
from stages.lineage.corpus import array_digests
from stages.lineage.rows import DatastoreRows
from stages.text.tokens import TokenSplit, open_split

LEARNED = "train"

Digests = frozenset[tuple[str, str]]
"""The bytes of a split's ids, wherever they lie."""


@dataclass(frozen=True)
class CountedText:
    """All of a split, or rows of it that a datastore has.

    `corpus`: reference of its tokens; `tokens`: how many are counted.
    """

    ids: Digests
    corpus: str
    split: str
    tokens: int
    held: "TokenSplit | tuple[DatastoreRows, int]"
    """A whole split, or a datastore and the number of its source."""

    def open(self) -> Pieces:
        """The tokens that are counted, each with its place in the split."""
        if isinstance(self.held, TokenSplit):
            return Pieces(np.asarray(self.held.ids[:]))
        rows, source = self.held
        first, end = rows.runs.block(source)
        places = rows.runs.places_of(np.arange(first, end))[1]
        return Pieces.of_places(np.asarray(rows.text.ids[first:end]), places)


def digests_of(tokens: Artifact, split: str) -> Digests:
    """Digests that identify a split."""
    return frozenset(array_digests(tokens, f"{split}/ids").items())


def learned_text(model: Artifact) -> CountedText | None:
    """The text that a model was trained on; None of a model that learned elsewhere, whose tokens say nothing of it."""
    tokens: Any = model.input("tokens")
    splits = tokens.metrics["splits"]
    if model.manifest.outside_files or LEARNED not in splits:
        return None
    held = open_split(tokens.zarr("tokens.zarr"), LEARNED)
    return CountedText(digests_of(tokens, LEARNED), tokens.reference, LEARNED, splits[LEARNED]["tokens"], held)


def counted_texts(model: Artifact, datastores: Iterable[Artifact]) -> list[CountedText]:
    """The texts that a model and datastores were made of, each once: where two hold parts of one, the larger part."""
    learned = learned_text(model)
    texts = {} if learned is None else {learned.ids: learned}
    for datastore in datastores:
        for text in _held(datastore):
            if text.ids not in texts or texts[text.ids].tokens < text.tokens:
                texts[text.ids] = text
    return list(texts.values())


def _held(datastore: Artifact) -> Iterator[CountedText]:
    """The rows of a datastore, by the split that they are of."""
    rows = DatastoreRows(datastore)
    for number, source in enumerate(rows.sources):
        first, end = rows.runs.block(number)
        ids = frozenset(source.ids.items())
        yield CountedText(ids, source.tokens.reference, source.split, end - first, (rows, number))
