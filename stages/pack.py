"""Stage pack-batches: tokens -> batches.

Finds the segments most similar to each segment of the training split. Then it orders all segments
so that similar ones follow each other; `stages.packing.work` does it.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.schema import Expected, Figures, Positive, Schema, offsets
from stages.artifacts.stage import Inputs, Stage
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, UsageError
from stages.examples import PAIRS, STREAMS
from stages.lineage.corpus import require_split
from stages.packing.checks import wrong_permutation
from stages.packing.segments import SPLIT, is_pairs
from stages.text.config import PackConfig

__all__ = ["PackBatches", "PackConfig"]


class BatchesFigures(Figures):
    """Metrics of packed batches."""

    segments: Positive


def batch_arrays(batches: Artifact, name: str) -> Expected | None:
    """The expected arrays: the order of the segments, and their offsets in the split."""
    segments = batches.metrics["segments"]
    tokens = batches.input("tokens")
    last = (
        tokens.metrics["splits"][SPLIT]["tokens"]
        if is_pairs(tokens)
        else segments * batches.config["segment_length"]
    )
    return {
        "batches.zarr/order": Expected((segments,), ("int64",), wrong_permutation),
        "batches.zarr/segment_offsets": Expected((segments + 1,), ("int64",), offsets(last)),
    }.get(name)


class PackBatches(Stage[PackConfig]):
    """Packs segments of the training split by BM25; role: `tokens`."""

    name = "pack-batches"
    kind = "batches"
    Config = PackConfig
    schema = Schema(BatchesFigures, batch_arrays)

    def inputs(self, config: PackConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        tokens = store.get(references["source"], "tokens")
        require_split(tokens, SPLIT)
        examples = tokens.metrics.get("examples", STREAMS)
        if examples == PAIRS:
            _require_sentences(config, tokens)
        elif examples == STREAMS:
            _require_segments(tokens, config.segment_length)
        else:
            raise ArtifactError(
                f"{tokens.reference} holds {examples}; segments can only be cut from streams of text."
            )
        if config.exclude == "document" and tokens.metrics["splits"][SPLIT]["documents"] < 2:
            raise DataError(
                f"Split {SPLIT!r} of {tokens.reference} is one document, and --exclude document packs segments of "
                "several; cut the text into documents (memlm tokenize --documents), or leave --exclude out."
            )
        return Inputs({"tokens": tokens})


def _require_segments(tokens: Artifact, length: int) -> None:
    """Check that the training split has at least two segments. Raises: DataError."""
    count = tokens.metrics["splits"][SPLIT]["tokens"]
    if count < 2 * length:
        raise DataError(
            f"Split {SPLIT!r} of {tokens.reference} has {count} tokens, less than two segments of {length}; "
            "pack more text, or choose a smaller --segment-length."
        )


def _require_sentences(config: PackConfig, tokens: Artifact) -> None:
    """Check the settings and the number of sentences of pairs. Raises: UsageError if a segment
    length is set; DataError for fewer than two sentences.
    """
    if config.segment_length != PackConfig.model_fields["segment_length"].default:
        raise UsageError(
            f"{tokens.reference} holds pairs, whose sentences are packed: leave --segment-length out."
        )
    if tokens.metrics["splits"][SPLIT]["documents"] < 2:
        raise DataError(
            f"Split {SPLIT!r} of {tokens.reference} is one sentence: there is nothing to pack."
        )
