"""From the reference a user gives to every artifact that an evaluation reads. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.evaluation.corpus import corpus_of, require_same_tokenizer, tokenizer_digest
from stages.models.config import parse_model

SOURCES = ("model", "index", "neighbors")


def language_model(source: Artifact) -> Artifact:
    """The model that a reference names: of an index or neighbors, the encoder of the datastore."""
    if source.kind == "model":
        return source
    return _index(source).input("datastore").input("encoder")


def has_gate(model: Artifact) -> bool:
    """Whether a model lets neighbours into its hidden state, and so reads some whatever else is read."""
    return parse_model(model.config["model"]).gate is not None


def memory_source(
    source: Artifact, references: Mapping[str, Any], store: Store, asked: bool | None = None
) -> Artifact | None:
    """The index or neighbors that external memory is read through, if it is read.

    Neighbours that are named for a model with a gate are the gate's, and external memory too where nothing else is.

    Args:
        asked: whether a reading of a datastore is asked for; None: nothing is said.
    Raises: UsageError if two are named by options, or one that no reading looks into.
    """
    model = language_model(source)
    gated = has_gate(model)
    named = [kind for kind in ("index", "neighbors")[: 1 if gated else 2] if references.get(kind) is not None]
    if named and asked is False:
        raise UsageError(f"--{named[0]} names a memory that no --memory reads: add --memory external:…, or knn-lm.")
    if len(named) == 2:
        raise UsageError("Give --index or --neighbors, not both: neighbors know their index.")
    if named:
        return store.get(references[named[0]], named[0])
    if source.kind != "model":
        return None if asked is False else source
    return _gate_neighbors(model, references, store) if gated and asked else None


def artifacts_read(
    model: Artifact, memory: Artifact | None, references: Mapping[str, Any], store: Store
) -> dict[str, Artifact]:
    """Everything an evaluation reads, by role; `memory` None: no datastore, but what a gate reads.

    Raises: ArtifactError if the tokens, the neighbours and the models do not belong together.
    """
    tokens = corpus_of(model, references, store)
    read = {"model": model, "tokens": tokens}
    if has_gate(model):
        read["gate_neighbors"] = _gate_neighbors(model, references, store)
        _require_fitting(read["gate_neighbors"], tokens, model)
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


def _gate_neighbors(model: Artifact, references: Mapping[str, Any], store: Store) -> Artifact:
    """What the gate of a model reads: the neighbors that are named, else those that it was trained with."""
    if references.get("neighbors") is not None:
        return store.get(references["neighbors"], "neighbors")
    if "neighbors" not in model.manifest.inputs:
        raise ArtifactError(
            f"{model.reference} has a gate, but was trained without neighbors: name those it is to read, --neighbors."
        )
    return model.input("neighbors")


def _require_fitting(neighbors: Artifact, tokens: Artifact, model: Artifact) -> None:
    """Raises: ArtifactError unless a gate can read these neighbours of the tokens, and their datastore is as it was."""
    datastore = neighbors.input("index").input("datastore")
    corpus = datastore.input("corpus")
    if tokenizer_digest(corpus) != tokenizer_digest(tokens):
        raise ArtifactError(
            f"{neighbors.reference} holds rows of {datastore.reference}, whose tokenizer is not that of "
            f"{model.reference}; find neighbours in a datastore of the same tokens: memlm train {tokens.reference}, "
            "memlm build-datastore, memlm build-index, memlm precompute-neighbors"
        )
    _require_queries(neighbors, tokens)


def require_neighbors(neighbors: Artifact, split: str, k: int) -> None:
    """Raises: ArtifactError if stored neighbours lack a split, or the number of neighbours, or hold the answers."""
    stored = stored_splits(neighbors)
    if split not in stored:
        raise ArtifactError(
            f"{neighbors.reference} has no neighbours of split {split!r} (it has: "
            f"{', '.join(stored)}); find them: {_finding(neighbors, queries=','.join([*stored, split]))}"
        )
    if k > stored[split]:
        raise ArtifactError(
            f"{neighbors.reference} has {stored[split]} neighbours a token, fewer than k={k}; "
            f"find more: {_finding(neighbors, k=k)}"
        )
    if neighbors.config["exclude"] == "none" and _is_stored(neighbors, split):
        raise ArtifactError(
            f"{neighbors.reference} lets tokens of {split!r} find their own rows, which hold the answers; "
            f"find others: {_finding(neighbors, exclude='self')}"
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


def _finding(neighbors: Artifact, **changes: Any) -> str:
    """The command that finds neighbours as these were found, but for some options; None: leave that out."""
    record = neighbors.manifest.inputs["index"]
    options = {**changes, **{name: value for name, value in _asked_for(neighbors).items() if name not in changes}}
    words = (f"--{name} {value}".strip() for name, value in options.items() if value is not None)
    return " ".join([f"memlm precompute-neighbors {record.kind}/{record.id}", *words])


def _asked_for(neighbors: Artifact) -> dict[str, Any]:
    """Options that neighbours were found with; None where the command does so by itself."""
    config, tokens = neighbors.config, neighbors.input("queries")
    every = set(config["queries"]) == set(tokens.metrics["splits"])
    own = tokens.record == neighbors.find("encoder").manifest.inputs["tokens"]
    return {
        "tokens": None if own else tokens.reference,
        "queries": None if every else ",".join(config["queries"]),
        "k": config["k"],
        "exclude": None if config["exclude"] in ("self", "none") else config["exclude"],
        "exact": None if config["candidates"] is None else "",
    }


def _index(memory: Artifact) -> Artifact:
    return memory if memory.kind == "index" else memory.input("index")


def _require_queries(neighbors: Artifact, tokens: Artifact) -> None:
    record = neighbors.manifest.inputs["queries"]
    if record != tokens.record:
        raise ArtifactError(
            f"{neighbors.reference} holds neighbours of {record.kind}/{record.id}, not of {tokens.reference}; "
            f"find those: {_finding(neighbors, tokens=tokens.reference, queries=None)}"
        )
