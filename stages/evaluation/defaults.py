"""How a model is read where the user does not say: by what it was trained to read. Free of torch."""

from collections.abc import Mapping
from typing import NamedTuple

from stages.artifacts.artifact import Artifact
from stages.models.config import parse_model

KNN_LM = ("knn-lm",)


class Habits(NamedTuple):
    """What models of one training method are read with; texts as after `--memory`."""

    alone: tuple[str, ...] = ()
    """Readings without a datastore."""
    with_datastore: tuple[str, ...] = KNN_LM
    """Readings with a datastore of the model's own keys."""
    trained_with_memory: bool = False
    """Whether the loss read cells by the scaled product of keys."""


METHODS = {
    "trime": Habits(("trime",), trained_with_memory=True),
    "trime-long": Habits(("trime-long",), trained_with_memory=True),
    "trime-ext": Habits(("trime",), ("trime-ext",), trained_with_memory=True),
}
"""Methods whose models have other habits than plain ones."""


def habits(model: Artifact) -> Habits:
    """What a model's method makes of it."""
    return METHODS.get(model.config["method"], Habits())


def default_memory(read: Mapping[str, Artifact]) -> tuple[str, ...]:
    """The readings where nothing is said; of another encoder's datastore kNN-LM.

    Args:
        read: what the evaluation reads, by role.
    """
    own = habits(read["model"])
    if "datastore" not in read:
        return own.alone
    return own.with_datastore if is_own_datastore(read) else KNN_LM


def lacking_memory(read: Mapping[str, Artifact]) -> str | None:
    """What to say of a model that learned to read a datastore and is read without one; None: nothing."""
    own = habits(read["model"])
    if "datastore" in read or own.with_datastore == KNN_LM:
        return None
    return (
        f"{read['model'].reference} learned to read a datastore too: evaluate an index of one "
        f"for {', '.join(own.with_datastore)}."
    )


def is_own_datastore(read: Mapping[str, Artifact]) -> bool:
    """Whether the keys of the datastore are those of the model that is evaluated."""
    return read["encoder"].record == read["model"].record


def default_similarity(model: Artifact, otherwise: str) -> str:
    """How queries and keys of a model are compared."""
    return "scaled-dot" if habits(model).trained_with_memory else otherwise


def default_key(model: Artifact) -> str:
    """The key of recent positions: what the loss compared, else `hidden`."""
    if not habits(model).trained_with_memory:
        return "hidden"
    trained = (model.config.get("memory") or {}).get("key")
    return str(trained or parse_model(model.config["model"]).keys[0])
