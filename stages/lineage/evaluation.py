"""Finds all artifacts that an evaluation reads, from the user's reference. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.lineage.corpus import array_digests, corpus_of, require_scoring, tokenizer_digest
from stages.lineage.indexes import is_exact, require_vectors
from stages.lineage.neighbors import require_queries
from stages.lineage.sources import tokenizer_of
from stages.models.config import model_of

SOURCES = ("model", "index", "neighbors")
MODELS_OWN = "gate_neighbors"
"""Role of the neighbours whose tokens are added to a model's hidden states."""


def language_model(source: Artifact) -> Artifact:
    """The model that a reference names; for an index or neighbors, the encoder of the datastore.

    Raises: ArtifactError if the model does not score tokens.
    """
    return require_scoring(
        source if source.kind == "model" else require_vectors(source).find("encoder")
    )


def memory_source(
    source: Artifact, references: Mapping[str, Any], store: Store, is_read: bool | None = None
) -> Artifact | None:
    """The index or neighbors for reading external memory; None if it is not read.

    For a model that reads neighbours, `--neighbors` names these. If a reading is requested without
    an index, they also serve as external memory.

    Args:
        is_read: whether a reading of a datastore is requested; None: not stated.
    Raises: UsageError if options name two memories, or one that is not read.
    """
    model = language_model(source)
    of_the_model = model_of(model).reads_neighbors
    # `--neighbors` for a model with a gate names its own neighbours, not an additional memory
    named = [
        kind
        for kind in ("index", "neighbors")[: 1 if of_the_model else 2]
        if references.get(kind) is not None
    ]
    if named and is_read is False:
        raise UsageError(
            f"--{named[0]} names a memory that no --memory reads: add --memory external:…, or knn-lm."
        )
    if len(named) == 2:
        raise UsageError("Give --index or --neighbors, not both: neighbors know their index.")
    if named:
        memory = store.get(references[named[0]], named[0])
        if memory.kind == "index" and is_exact(memory):
            raise UsageError(
                f"{memory.reference} holds the contexts of a text: read it with --memory exact."
            )
        return memory
    # an index or neighbours named by the command are a memory, unless no reading uses one
    if source.kind != "model":
        return None if is_read is False else source
    return _models_own(model, references, store) if of_the_model and is_read else None


def artifacts_read(
    model: Artifact, memory: Artifact | None, references: Mapping[str, Any], store: Store
) -> dict[str, Artifact]:
    """All artifacts that an evaluation reads, by role; `memory` None: no datastore except the
    model's own.

    Raises: ArtifactError if the tokens, the neighbours and the models do not belong together.
    """
    tokens = corpus_of(model, references, store)
    read = {"model": model, "tokens": tokens}
    if model_of(model).reads_neighbors:
        read[MODELS_OWN] = _models_own(model, references, store)
        _require_fitting(read[MODELS_OWN], tokens)
    if memory is None:
        return read
    _require_fitting(memory, tokens)
    read[memory.kind] = memory
    if memory.kind == "neighbors":
        read["index"] = memory.input("index")
    read["datastore"] = memory.find("datastore")
    read["encoder"] = memory.find("encoder")
    return read


def require_same_scored(baseline: Artifact, tokens: Artifact, split: str, score: str) -> None:
    """Check that the report `baseline` scores the same tokens, so that rows are comparable. Raises:
    ArtifactError.
    """
    scored = baseline.input("tokens")
    same = tokenizer_digest(scored) == tokenizer_digest(tokens)
    same = same and array_digests(scored, f"{split}/ids") == array_digests(tokens, f"{split}/ids")
    if not same or (baseline.config["split"], baseline.config["score"]) != (split, score):
        raise ArtifactError(
            f"{baseline.reference} scores {baseline.config['split']} of {scored.reference} "
            f"({baseline.config['score']}), not {split} of {tokens.reference} ({score}): it is no baseline of this. "
            "Evaluate both on the same."
        )


def datastores_read(read: Mapping[str, Artifact]) -> list[tuple[Artifact, Artifact | None]]:
    """The datastores that an evaluation reads, each with its stored neighbours, if these are used.

    Args:
        read: result of `artifacts_read`; the model's own neighbours come from a datastore, too.
    """
    external = [(read["datastore"], read.get("neighbors"))] if "datastore" in read else []
    own_neighbors = read.get(MODELS_OWN)
    return external + (
        [] if own_neighbors is None else [(own_neighbors.find("datastore"), own_neighbors)]
    )


def _models_own(model: Artifact, references: Mapping[str, Any], store: Store) -> Artifact:
    """Neighbors of a model with a gate: the named ones, else those of its training."""
    if references.get("neighbors") is not None:
        return store.get(references["neighbors"], "neighbors")
    if "neighbors" not in model.manifest.inputs:
        raise ArtifactError(
            f"{model.reference} has a gate, but was trained without neighbors: name those it is to read, --neighbors."
        )
    return model.input("neighbors")


def _require_fitting(memory: Artifact, tokens: Artifact) -> None:
    """Raises: ArtifactError unless an index or neighbors hold rows of the same vocabulary, found
    for these tokens.
    """
    if tokenizer_digest(tokenizer_of(memory.find("datastore"))) != tokenizer_digest(tokens):
        searching = ", memlm precompute-neighbors" if memory.kind == "neighbors" else ""
        raise ArtifactError(
            f"{memory.reference} holds rows of {memory.find('datastore').reference}, whose tokenizer is not that of "
            f"{tokens.reference}; search a datastore with the same: {tokens.advise('train', tokens.reference)}, "
            f"memlm build-datastore, memlm build-index{searching}"
        )
    if memory.kind == "neighbors":
        require_queries(memory, tokens)
