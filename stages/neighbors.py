"""Stage precompute-neighbors: index -> neighbors.

Searches the index with the key of every token of every split; `stages.indexing.neighbors` does it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.schema import Count, Expected, Figures, Schema, Share, numbers
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.indexing.checks import wrong_neighbors
from stages.lineage.corpus import corpus_of, require_split
from stages.lineage.indexes import require_all, require_vectors
from stages.lineage.sources import own_splits
from stages.models.devices import device_type, resolve_precision
from stages.search.config import NeighborsConfig, exactness, lists_to_read

__all__ = ["NeighborsConfig", "PrecomputeNeighbors"]


class QueriesFigures(Figures):
    """Metrics of the neighbours of one split."""

    missing: Share
    queries: Count


class NeighborsFigures(Figures):
    """Metrics of neighbours."""

    splits: dict[str, QueriesFigures]


def neighbor_arrays(artifact: Artifact, name: str) -> Expected | None:
    """The arrays of `neighbors.zarr/SPLIT`."""
    _, split, array = (*name.split("/", 2), "", "")[:3]
    recorded = artifact.input("queries").metrics["splits"].get(split)
    if recorded is None:
        return None
    shape = recorded["tokens"], artifact.config["k"]
    return {
        "ids": Expected(
            shape, ("int64",), partial(wrong_neighbors, artifact.find("datastore").metrics["rows"])
        ),
        "distances": Expected(shape, ("float32",), numbers),
    }.get(array)


class PrecomputeNeighbors(Stage[NeighborsConfig]):
    """Looks up every token's context in an index; roles: `index`, `queries` (tokens)."""

    name = "precompute-neighbors"
    kind = "neighbors"
    Config = NeighborsConfig
    schema = Schema(NeighborsFigures, neighbor_arrays)

    def inputs(
        self, config: NeighborsConfig, references: Mapping[str, Any], store: Store
    ) -> Inputs:
        index = require_all(
            require_vectors(store.get(references["source"], "index")), "a search for neighbours"
        )
        tokens = corpus_of(index.find("encoder"), references, store)
        for split in config.queries or ():
            require_split(tokens, split)
        return Inputs({"index": index, "queries": tokens})

    def resolve(
        self, config: NeighborsConfig, inputs: Inputs, execution: Execution
    ) -> NeighborsConfig:
        index = inputs["index"]
        splits = tuple(dict.fromkeys(config.queries or inputs["queries"].metrics["splits"]))
        splits_held = own_splits(index.input("datastore"), inputs["queries"])
        exclude = "self" if config.exclude == "auto" else config.exclude
        changes = {
            "queries": splits,
            "exclude": "none" if splits_held.isdisjoint(splits) else exclude,
            "probe": lists_to_read(config, index.config, index.metrics),
            "precision": resolve_precision(config.precision, device_type(execution.device)),
            **exactness(config, index.metrics["lossless"]),
        }
        return config.model_copy(update=changes)
