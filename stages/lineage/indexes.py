"""The index of the datastore before, which the index of a changed datastore can be made from. Free of FAISS."""

from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.lineage.sources import is_updated
from stages.search.automatic import automatic_kind
from stages.search.config import IndexConfig, Keys

NONE = "none"
"""In place of an index: it is to be built anew."""
LEARNED = ("lists", "code_bytes", "code_bits", "links", "train_keys")
"""Settings that `auto` leaves as they are in the index before."""
SAME = ("metric", "seed")


def index_before(datastore: Artifact, config: IndexConfig, named: str | None, store: Store) -> Artifact | None:
    """The index that is to be changed into that of a datastore, if one is to be.

    Args:
        config: what is asked for, not resolved.
        named: a reference; `none`; None: the latest of such settings that the store has.
    Raises: UsageError if the index that is named is not one of the datastore before, or of other settings.
    """
    if named == NONE:
        return None
    if named is not None:
        index = store.get(named, "index")
        _require_fitting(index, datastore, config)
        return index
    if not is_updated(datastore):
        return None
    record = datastore.manifest.inputs[PREVIOUS]
    if not store.has(record.kind, record.id):
        return None
    found = [
        one
        for one in store.artifacts("index")
        if one.manifest.inputs.get("datastore") == record and other_settings(one, config, _keys(datastore)) is None
    ]
    return store.get(found[-1].reference) if found else None


def _require_fitting(index: Artifact, datastore: Artifact, config: IndexConfig) -> None:
    before = datastore.manifest.inputs.get(PREVIOUS)
    if before is None or index.manifest.inputs["datastore"] != before:
        made = f"made from {before.reference}" if before else "not made from another datastore"
        raise UsageError(
            f"{index.reference} is of {index.manifest.inputs['datastore'].reference}, but {datastore.reference} was "
            f"{made}: leave --update out, or name an index of that."
        )
    other = other_settings(index, config.model_copy(update={"index": _kind(index, config)}), _keys(datastore))
    if other is not None:
        raise UsageError(f"{index.reference} has {other}: ask for the same, or leave --update out.")


def _kind(index: Artifact, config: IndexConfig) -> str:
    """The kind asked for; where none is, that of the index that is named."""
    return str(index.config["index"]) if config.index == "auto" else config.index


def other_settings(index: Artifact, config: IndexConfig, keys: Keys) -> str | None:
    """The first setting of an index, in words, that is not what is asked for; None if all are."""
    kind = automatic_kind(keys, config.largest_gigabytes)[0] if config.index == "auto" else config.index
    asked: dict[str, Any] = {"index": kind} | {name: getattr(config, name) for name in (*SAME, *LEARNED)}
    for name, value in asked.items():
        if value not in ("auto", None) and value != index.config[name]:
            return f"{name} {index.config[name]}, not {value}"
    return None


def _keys(datastore: Artifact) -> Keys:
    return Keys(datastore.metrics["rows"], datastore.metrics["dim"], datastore.metrics["dtype"])
