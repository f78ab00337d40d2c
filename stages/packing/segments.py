"""Segments of a training split, and the arrays of packed batches, by manifests alone."""

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.examples import PAIRS, STREAMS
from stages.text.config import PackConfig

SPLIT = "train"
INT64_BYTES = 8


def is_pairs(tokens: Artifact) -> bool:
    """Whether tokens hold pairs, whose sentences are the segments."""
    return bool(tokens.metrics.get("examples", STREAMS) == PAIRS)


def whole_segments(config: PackConfig, inputs: Inputs) -> int:
    """Number of whole segments in the split, or of sentences if it holds pairs, from the manifest."""
    split = inputs["tokens"].metrics["splits"][SPLIT]
    if is_pairs(inputs["tokens"]):
        return int(split["documents"])
    return int(split["tokens"]) // config.segment_length


def array_layouts(segments: int) -> dict[str, ArrayLayout]:
    """Layouts of the arrays of packed batches, by name."""
    rows = {"order": segments, "segment_offsets": segments + 1}
    return {f"batches.zarr/{name}": array_layout(name, count) for name, count in rows.items()}


def array_layout(name: str, rows: int) -> ArrayLayout:
    """Layout of an int64 array."""
    return ArrayLayout(f"batches.zarr/{name}", (rows,), "int64", rows_per_shard(INT64_BYTES))
