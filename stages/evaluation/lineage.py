"""From the reference a user gives to every artifact that an evaluation reads. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.evaluation.corpus import corpus_of, require_same_tokenizer

SOURCES = ("model", "index", "neighbors")


def language_model(source: Artifact) -> Artifact:
    """The model that a reference names: of an index or neighbors, the encoder of the datastore."""
    if source.kind == "model":
        return source
    return _index(source).input("datastore").input("encoder")


def memory_source(source: Artifact, references: Mapping[str, Any], store: Store) -> Artifact | None:
    """The index or neighbors that external memory is read through, if there is one.

    Raises: UsageError if two are named by options.
    """
    given = [kind for kind in ("index", "neighbors") if references.get(kind) is not None]
    if len(given) == 2:
        raise UsageError("Give --index or --neighbors, not both: neighbors know their index.")
    if given:
        return store.get(references[given[0]], given[0])
    return None if source.kind == "model" else source


def artifacts_read(
    source: Artifact, memory: Artifact | None, references: Mapping[str, Any], store: Store
) -> dict[str, Artifact]:
    """Everything an evaluation reads, by role; `memory` None: the plain model alone.

    Raises: ArtifactError if the tokens, the neighbours and the models do not belong together.
    """
    model = language_model(source)
    tokens = corpus_of(model, references, store)
    read = {"model": model, "tokens": tokens}
    if memory is None:
        return read
    if memory.kind == "neighbors":
        read["neighbors"] = memory
        _require_queries(memory, tokens)
    read["index"] = _index(memory)
    read["datastore"] = read["index"].input("datastore")
    read["encoder"] = read["datastore"].input("encoder")
    require_same_tokenizer(read["datastore"].input("corpus"), tokens, read["encoder"])
    return read


def require_neighbors(neighbors: Artifact, split: str, k: int) -> None:
    """Raises: ArtifactError if stored neighbours lack a split, or the number of neighbours, or hold the answers."""
    stored = stored_splits(neighbors)
    if split not in stored:
        raise ArtifactError(
            f"{neighbors.reference} has no neighbours of split {split!r} (it has: "
            f"{', '.join(stored)}); find them: memlm precompute-neighbors --queries {split}"
        )
    if k > stored[split]:
        raise ArtifactError(
            f"{neighbors.reference} has {stored[split]} neighbours a token, fewer than k={k}; "
            f"find more: memlm precompute-neighbors --k {k}"
        )
    if neighbors.config["exclude"] == "none" and _is_stored(neighbors, split):
        raise ArtifactError(
            f"{neighbors.reference} lets tokens of {split!r} find their own rows, which hold the answers; "
            "find others: memlm precompute-neighbors --exclude self"
        )


def _is_stored(neighbors: Artifact, split: str) -> bool:
    """Whether the datastore was made of this split of the tokens that were looked up."""
    datastore = neighbors.input("index").input("datastore")
    same = neighbors.manifest.inputs["queries"] == datastore.manifest.inputs["corpus"]
    return same and split == datastore.config["split"]


def stored_splits(neighbors: Artifact) -> dict[str, int]:
    """The splits whose neighbours are stored, with how many a token."""
    group: Any = neighbors.zarr("neighbors.zarr")
    return {split: int(group[f"{split}/ids"].shape[1]) for split in sorted(group.group_keys())}


def _index(memory: Artifact) -> Artifact:
    return memory if memory.kind == "index" else memory.input("index")


def _require_queries(neighbors: Artifact, tokens: Artifact) -> None:
    record = neighbors.manifest.inputs["queries"]
    if record != tokens.record:
        raise ArtifactError(
            f"{neighbors.reference} holds neighbours of {record.kind}/{record.id}, not of "
            f"{tokens.reference}; find those: memlm precompute-neighbors --tokens {tokens.reference}"
        )
