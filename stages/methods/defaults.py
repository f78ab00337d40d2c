"""Default readings of a model: those that it was trained with. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError, content_of
from stages.methods import METHODS
from stages.methods.config import EvaluationDefaults
from stages.models.config import model_of

KNN_LM = ("knn-lm",)


def evaluation_defaults(model: Artifact) -> EvaluationDefaults:
    """Return the defaults of the method that trained a model."""
    with content_of(model.path / "manifest.json", UsageError):
        return METHODS.settings(model.config["method"]).evaluation


def default_memory(read: Mapping[str, Artifact]) -> tuple[str, ...]:
    """The default readings: the model's own, and kNN-LM on top of them if there is a datastore.

    A model that learned to read a datastore of its own keys reads it as in training.

    Args:
        read: what the evaluation reads, by role.
    """
    defaults = evaluation_defaults(read["model"])
    if "datastore" not in read:
        return defaults.alone
    if defaults.own_datastore is not None and is_own_datastore(read):
        return defaults.own_datastore
    return defaults.alone + KNN_LM


def lacking_memory(read: Mapping[str, Artifact]) -> str | None:
    """Warning about a model that was trained to read a datastore and is read without one; None: all
    is well.
    """
    defaults = evaluation_defaults(read["model"])
    if "datastore" in read or defaults.own_datastore is None:
        return None
    return (
        f"{read['model'].reference} learned to read a datastore too: evaluate an index of one "
        f"for {', '.join(defaults.own_datastore)}."
    )


def is_own_datastore(read: Mapping[str, Artifact]) -> bool:
    """Whether the keys of the datastore are those of the model that is evaluated."""
    return read["encoder"].record == read["model"].record


def default_similarity(model: Artifact, otherwise: str) -> str:
    """Similarity of queries and keys of a model; `otherwise` if it was trained without memory."""
    return "scaled-dot" if evaluation_defaults(model).trained_with_memory else otherwise


def default_key(model: Artifact) -> str:
    """The key of recent positions: the representation that the loss compared, else `hidden`."""
    return stored_key(model) if evaluation_defaults(model).trained_with_memory else "hidden"


def stored_key(encoder: Artifact) -> str:
    """The key of a datastore: the representation that the encoder's loss compared, else the
    backbone's first.
    """
    return str(_training(encoder).get("key") or model_of(encoder).reads.keys[0])


def trained_temperature(model: Artifact) -> float:
    """τ of the loss; 1 for a model trained without memory."""
    return float(_training(model).get("temperature", 1.0))


def _training(model: Artifact) -> Mapping[str, Any]:
    """The settings of the memory that a model was trained with; empty if it was trained without."""
    return model.config.get("memory") or {}
