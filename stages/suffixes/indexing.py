"""The index `exact`: the sorted contexts of a text. It only depends on tokens, so all models of
them can use it.

Inputs, settings, arrays and sizes, free of NumPy; see `work` for the sorting.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.schema import Expected, anything, between
from stages.artifacts.stage import Inputs
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.search import EXACT
from stages.search.config import IndexConfig
from stages.suffixes import AT_ONCE, IN_MEMORY

TEXT = "text"
"""Role of the tokens that are sorted; see also `stages.lineage.indexes`."""
GROUP = "contexts.zarr"
CONTEXTS_PER_SHARD = 1 << 20
"""Most contexts that are sorted together; shards hold two thirds of it on average, since their
sizes differ.
"""
ROWS_PER_SHARD = 1 << 19
SORTING_BYTES = 110
"""Bytes of memory for each context while it is sorted."""
LEFT_OUT = ("lists", "probe", "code_bytes", "code_bits", "links", "train_keys")
VECTORS = (*LEFT_OUT, "metric", "seed", "keep", "recall")
"""Settings of other kinds, which an exact index refuses."""


def exact_inputs(config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
    """The text whose contexts are sorted. Raises: ArtifactError for a split without text."""
    text = store.get(references["source"], "tokens")
    split = config.split or "train"

    figures_by_split = text.metrics["splits"]
    with_text = [name for name, figures in figures_by_split.items() if figures["tokens"]]
    if split not in with_text:
        raise ArtifactError(
            f"{text.reference} has no text in split {split!r} to sort (it has: {', '.join(with_text)})."
        )
    return Inputs({TEXT: text})


def resolve_exact(config: IndexConfig) -> IndexConfig:
    """The settings of an exact index. Raises: UsageError for settings of other kinds."""
    defaults = IndexConfig().model_dump()
    for name in VECTORS:
        if getattr(config, name) != defaults[name]:
            raise UsageError(f"{name} means nothing to an {EXACT!r} index: leave it out.")
    return config.model_copy(update={**dict.fromkeys(LEFT_OUT), "split": config.split or "train"})


def opened_bytes(tokens: int) -> int:
    """Most bytes of memory that an opened index of `tokens` tokens takes, without mapped arrays."""
    position_bytes = 8 if tokens >= 2**32 else 4
    # Ids and lengths of the text, positions and shared symbols of the order.
    bytes_per_token = [4, 1, position_bytes, 1]
    arrays = sum(min(size * tokens, IN_MEMORY) for size in bytes_per_token)
    # While they are read: four int64 arrays of one block.
    return arrays + 32 * min(tokens, AT_ONCE)


def scratch_bytes(rows: int, position_bytes: int) -> int:
    """Most bytes of scratch files; `position_bytes`: bytes of a position in the text."""
    # A new context takes most: a position once grouped; a position, a rank and three counts of
    # shared symbols once sorted.
    return rows * (3 * position_bytes + 3)


def context_arrays(index: Artifact, name: str) -> Expected | None:
    """The expected arrays of `contexts.zarr`."""
    rows = index.metrics["rows"]
    if name == f"{GROUP}/order":
        return Expected((rows,), ("uint32", "uint64"), between(0, rows, "tokens of the text"))
    if name == f"{GROUP}/shared":
        return Expected((rows,), ("uint8",), anything)
    return None
