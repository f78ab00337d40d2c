"""The kinds of artifacts, the stages that make them, and the format that this version writes and reads."""

from typing import NamedTuple

from stages.registry import Registry


class Kind(NamedTuple):
    """One kind of artifact."""

    command: str
    """The stage that makes it from the start."""
    format_version: int
    """Raised where the same settings give other bytes or names, and where a default changes."""


KINDS = {
    "tokens": Kind("tokenize", 3),
    "model": Kind("train", 2),
    "datastore": Kind("build-datastore", 2),
    "index": Kind("build-index", 3),
    "neighbors": Kind("precompute-neighbors", 2),
    "batches": Kind("pack-batches", 2),
    "report": Kind("evaluate", 4),
}
STAGES = Registry(
    "stage",
    {
        "tokenize": "stages.tokenize:Tokenize",
        "train": "stages.train:Train",
        "import-model": "stages.import_model:ImportModel",
        "build-datastore": "stages.datastore:BuildDatastore",
        "update-datastore": "stages.update:UpdateDatastore",
        "build-index": "stages.index:BuildIndex",
        "precompute-neighbors": "stages.neighbors:PrecomputeNeighbors",
        "pack-batches": "stages.pack:PackBatches",
        "evaluate": "stages.evaluate:Evaluate",
    },
)
"""The stages by name, which is that of their command; manifests name the one that made an artifact."""

PREVIOUS, ADDED = "previous", "added"
USED_UP = frozenset({PREVIOUS, ADDED})
"""Roles of inputs of which what was made from them holds all it needs: they may go, and nothing keeps them."""
