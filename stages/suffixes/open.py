"""An index of exact matches, opened."""

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.suffixes.indexing import GROUP, TEXT, text_of
from stages.suffixes.matches import SortedContexts


def open_contexts(index: Artifact) -> SortedContexts:
    """The sorted contexts of an index, in memory: 10 bytes a token at most, of less than 2^32."""
    group = index.zarr(GROUP)
    text = text_of(index.input(TEXT), str(index.config["split"]))
    return SortedContexts(text, np.asarray(group["order"][:]), np.asarray(group["shared"][:]))
