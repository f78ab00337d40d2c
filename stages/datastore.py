"""Stage build-datastore: model -> datastore.

Stores the key of every token of a split; `stages.encoding.datastore_work` does it.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.encoding.datastore_config import DatastoreConfig
from stages.encoding.stored_rows import BUILT
from stages.encoding.window_settings import resolve_windows
from stages.lineage.corpus import corpus_of, require_key, require_split, require_text
from stages.methods.defaults import stored_key
from stages.models.config import model_of
from stages.models.devices import device_type, resolve_precision

__all__ = ["BuildDatastore", "DatastoreConfig"]


class BuildDatastore(Stage[DatastoreConfig]):
    """Encodes a split; roles: `encoder` (model), `corpus` (tokens)."""

    name = "build-datastore"
    kind = "datastore"
    Config = DatastoreConfig
    schema = BUILT

    def inputs(
        self, config: DatastoreConfig, references: Mapping[str, Any], store: Store
    ) -> Inputs:
        encoder = require_text(store.get(references["source"], "model"))
        corpus = corpus_of(encoder, references, store)
        require_split(corpus, config.split)
        return Inputs({"encoder": encoder, "corpus": corpus})

    def resolve(
        self, config: DatastoreConfig, inputs: Inputs, execution: Execution
    ) -> DatastoreConfig:
        windows = resolve_windows(inputs["encoder"], config.asked_windows)
        key = config.key or stored_key(inputs["encoder"])
        require_key(inputs["encoder"], key)
        precision = resolve_precision(config.precision, device_type(execution.device))
        reset = (
            "document" if model_of(inputs["encoder"]).reads.source else config.reset
        )  # pairs are read one by one
        settled = {"key": key, "reset": reset, "precision": precision, **windows._asdict()}
        return config.model_copy(update=settled)
