"""The kinds of artifacts, the stages that make them, and the format that this version writes and reads."""

from typing import NamedTuple

from stages.registry import Part, Registry


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
        "tokenize": Part("stages.text.config:TokenizeConfig", "stages.tokenize:Tokenize"),
        "train": Part("stages.training.config:TrainConfig", "stages.train:Train"),
        "import-model": Part("stages.import_model:ImportConfig", "stages.import_model:ImportModel"),
        "build-datastore": Part("stages.datastore:DatastoreConfig", "stages.datastore:BuildDatastore"),
        "update-datastore": Part("stages.updating.config:UpdateConfig", "stages.update:UpdateDatastore"),
        "build-index": Part("stages.search.config:IndexConfig", "stages.index:BuildIndex"),
        "precompute-neighbors": Part(
            "stages.search.query_config:NeighborsConfig", "stages.neighbors:PrecomputeNeighbors"
        ),
        "pack-batches": Part("stages.text.config:PackConfig", "stages.pack:PackBatches"),
        "evaluate": Part("stages.evaluation.config:EvaluateConfig", "stages.evaluate:Evaluate"),
    },
)
"""Settings, free of torch, and stage by name, that of the command; a manifest names the stage that made it."""

PREVIOUS, ADDED = "previous", "added"
USED_UP = frozenset({PREVIOUS, ADDED})
"""Roles of inputs of which what was made from them holds all it needs: they may go, and nothing keeps them."""
