"""From the reference a user gives to every artifact that an evaluation reads. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.evaluation.corpus import corpus_of, own_splits, tokenizer_digest
from stages.models.config import parse_model
from stages.search.exclusion import excluding_fewer

SOURCES = ("model", "index", "neighbors")


def language_model(source: Artifact) -> Artifact:
    """The model that a reference names: of an index or neighbors, the encoder of the datastore."""
    if source.kind == "model":
        return source
    return source.find("encoder")


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
        _require_fitting(read["gate_neighbors"], tokens)
    if memory is None:
        return read
    _require_fitting(memory, tokens)
    read[memory.kind] = memory
    if memory.kind == "neighbors":
        read["index"] = memory.input("index")
    read["datastore"] = memory.find("datastore")
    read["encoder"] = memory.find("encoder")
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


def _require_fitting(memory: Artifact, tokens: Artifact) -> None:
    """Raises: ArtifactError unless an index or neighbors hold rows of the same vocabulary, found for these tokens."""
    if tokenizer_digest(memory.find("corpus")) != tokenizer_digest(tokens):
        searching = ", memlm precompute-neighbors" if memory.kind == "neighbors" else ""
        raise ArtifactError(
            f"{memory.reference} holds rows of {memory.find('datastore').reference}, whose tokenizer is not that of "
            f"{tokens.reference}; search a datastore with the same: memlm train {tokens.reference}, "
            f"memlm build-datastore, memlm build-index{searching}"
        )
    if memory.kind == "neighbors":
        _require_queries(memory, tokens)


def require_neighbors(neighbors: Artifact, split: str, k: int, fewer: str) -> None:
    """Whether k stored neighbours of every token of a split can be read.

    Args:
        fewer: the option that has fewer read, up to their number: `train --set memory.k=`.
    Raises: ArtifactError, naming the command that mends it, if the split or so many neighbours were not looked up,
        or they may hold the answers.
    """
    stored = stored_splits(neighbors)
    if split not in stored:
        raise ArtifactError(
            f"{neighbors.reference} has no neighbours of split {split!r} (it has: "
            f"{', '.join(stored)}); find them: {_finding(neighbors, queries=','.join([*stored, split]))}"
        )
    if k > stored[split]:
        raise ArtifactError(
            f"{neighbors.reference} has {stored[split]} neighbours a token, fewer than k={k}; "
            f"read fewer: {fewer}{stored[split]}, or find more: {_finding(neighbors, k=k)}"
        )
    _require_honest(neighbors, split)


def _require_honest(neighbors: Artifact, split: str) -> None:
    excludes = neighbors.config["exclude"] != "none"
    if not excludes and split in own_splits(neighbors.find("datastore"), neighbors.input("queries")):
        raise ArtifactError(
            f"{neighbors.reference} lets tokens of {split!r} find their own rows, which hold the answers; "
            f"find others: {_finding(neighbors, exclude='self')}"
        )


def require_some(neighbors: Artifact, split: str) -> None:
    """Raises: ArtifactError, naming what mends it, if no token of a split has a neighbour to learn from."""
    if neighbors.metrics["splits"][split]["missing"] < 1:
        return
    exclude = neighbors.config["exclude"]
    raise ArtifactError(
        f"{neighbors.reference} has not one neighbour of a token of {split!r}: --exclude {exclude} leaves none of the "
        f"rows of {neighbors.find('datastore').reference}; "
        f"{excluding_fewer(exclude, _finding(neighbors, exclude='window:N'))}"
    )


def stored_splits(neighbors: Artifact) -> dict[str, int]:
    """The splits whose neighbours are stored, with how many a token."""
    group: Any = neighbors.zarr("neighbors.zarr")
    return {split: int(group[f"{split}/ids"].shape[1]) for split in sorted(group.group_keys())}


def _finding(neighbors: Artifact, **changes: Any) -> str:
    """The command that finds neighbours as these were found, but for some options; None: leave that out."""
    record = neighbors.manifest.inputs["index"]
    options = {**changes, **{name: value for name, value in _asked_for(neighbors).items() if name not in changes}}
    words = (f"--{name} {value}".strip() for name, value in options.items() if value is not None)
    return " ".join([f"memlm precompute-neighbors {record.reference}", *words])


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


def _require_queries(neighbors: Artifact, tokens: Artifact) -> None:
    record = neighbors.manifest.inputs["queries"]
    if record != tokens.record:
        raise ArtifactError(
            f"{neighbors.reference} holds neighbours of {record.reference}, not of {tokens.reference}; "
            f"find those: {_finding(neighbors, tokens=tokens.reference, queries=None)}"
        )
