"""A split, or an index of exact matches, opened: what is large is mapped, so that memory holds what is read of it."""

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.suffixes.indexing import GROUP, TEXT
from stages.suffixes.matches import SortedContexts
from stages.suffixes.text import Text, opened
from stages.text.tokens import open_split


def text_of(tokens: Artifact, split: str) -> Text:
    """A split, its documents apart from each other."""
    held = open_split(tokens.zarr("tokens.zarr"), split)
    return Text.of(held.ids, np.asarray(held.doc_offsets[:]), int(tokens.metrics["vocabulary_size"]))


def open_contexts(index: Artifact) -> SortedContexts:
    """The sorted contexts of an index."""
    group, text = index.zarr(GROUP), text_of(index.input(TEXT), str(index.config["split"]))
    return SortedContexts(text, opened(group["order"]), opened(group["shared"]))
