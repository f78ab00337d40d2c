"""The keys of a datastore."""

from stages.artifacts.artifact import Artifact
from stages.artifacts.rows import Rows
from stages.search.keys import StoredKeys


def stored_keys(datastore: Artifact) -> StoredKeys:
    """Keys [rows, dim], read from the files of their shards."""
    return StoredKeys(Rows(datastore.zarr("datastore.zarr")["keys"]))
