"""The kinds of artifacts, the stages that make them, and the format versions that this memlm writes
and reads.
"""

from typing import Any, NamedTuple

from stages.registry import Registry, load


class Kind(NamedTuple):
    """One kind of artifact."""

    command: str
    """The usual command that makes one; other stages may make the same kind."""
    format_version: int
    """Format version; it rises when the same settings give other bytes or names, and when a default
    changes.
    """


KINDS = {
    "tokens": Kind("tokenize", 3),
    "model": Kind("train", 3),
    "datastore": Kind("build-datastore", 2),
    "index": Kind("build-index", 3),
    "neighbors": Kind("precompute-neighbors", 2),
    "batches": Kind("pack-batches", 2),
    "report": Kind("evaluate", 7),
    "episodes": Kind("build-episodes", 2),
    "matrix": Kind("evaluate-tasks", 4),
}


class StageEntry(NamedTuple):
    """Location of a stage; each field is `"module:class"`."""

    settings: str
    """Its settings. Help imports nothing else."""
    contract: str
    """The `Stage`: inputs, schema and resolution, free of torch and NumPy."""
    work: str
    """The `SerialWork` or `ShardedWork`, which is imported only if the artifact is to be made."""


class StageTable(Registry):
    """Stages by the names of their commands. A manifest names the stage that made the artifact."""

    def settings(self, name: str) -> Any:
        """The class of the settings of `name`. Raises: see `load`."""
        entry = self._part(name)
        return load(entry.settings) if isinstance(entry, StageEntry) else super().settings(name)

    def load(self, name: str) -> Any:
        """The contract registered as `name`. Raises: UnknownPart for an unknown name."""
        entry = self._part(name)
        return load(entry.contract) if isinstance(entry, StageEntry) else super().load(name)

    def work(self, name: str) -> Any:
        """The class of the work registered as `name`. Raises: see `load`."""
        entry = self._part(name)
        return load(entry.work) if isinstance(entry, StageEntry) else super().load(name)


STAGES = StageTable(
    "stage",
    {
        "tokenize": StageEntry(
            "stages.text.config:TokenizeConfig",
            "stages.tokenize:Tokenize",
            "stages.tokenization.work:TokenizeWork",
        ),
        "train": StageEntry(
            "stages.training.config:TrainConfig",
            "stages.train:Train",
            "stages.training.work:TrainWork",
        ),
        "import-model": StageEntry(
            "stages.pretrained.config:ImportConfig",
            "stages.import_model:ImportModel",
            "stages.pretrained.work:ImportWork",
        ),
        "build-datastore": StageEntry(
            "stages.encoding.datastore_config:DatastoreConfig",
            "stages.datastore:BuildDatastore",
            "stages.encoding.datastore_work:DatastoreWork",
        ),
        "update-datastore": StageEntry(
            "stages.updating.config:UpdateConfig",
            "stages.update:UpdateDatastore",
            "stages.updating.work:UpdateWork",
        ),
        "build-index": StageEntry(
            "stages.search.config:IndexConfig",
            "stages.index:BuildIndex",
            "stages.indexing.vectors:VectorIndexWork",
        ),
        "precompute-neighbors": StageEntry(
            "stages.search.config:NeighborsConfig",
            "stages.neighbors:PrecomputeNeighbors",
            "stages.indexing.neighbors:NeighborsWork",
        ),
        "pack-batches": StageEntry(
            "stages.text.config:PackConfig",
            "stages.pack:PackBatches",
            "stages.packing.work:PackWork",
        ),
        "evaluate": StageEntry(
            "stages.evaluation.config:EvaluateConfig",
            "stages.evaluate:Evaluate",
            "stages.evaluation.work:EvaluateWork",
        ),
        "build-episodes": StageEntry(
            "stages.tasks.episodes:EpisodesConfig",
            "stages.episodes:BuildEpisodes",
            "stages.tasks.episodes_work:EpisodesWork",
        ),
        "evaluate-tasks": StageEntry(
            "stages.tasks.config:EvaluateTasksConfig",
            "stages.evaluate_tasks:EvaluateTasks",
            "stages.tasks.work:EvaluateTasksWork",
        ),
    },
)

PREVIOUS, ADDED = "previous", "added"
USED_UP = frozenset({PREVIOUS, ADDED})
"""Roles of inputs that are not needed to read the output; these artifacts may be removed."""
