"""Schema of `build-datastore` and `update-datastore`: keys and values by row."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from stages.artifacts.schema import Count, Expected, Figures, Positive, Schema, anything, between, finite, offsets

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


class DatastoreFigures(Figures):
    """Metrics of a datastore."""

    rows: Positive
    dim: Annotated[int, Field(gt=0, lt=2**31)]
    dtype: Literal["float16", "float32"]
    added: Count = 0
    documents: Count = 0


def row_arrays(datastore: "Artifact", name: str, tokens: "Artifact") -> Expected | None:
    """Keys and values; `tokens` has the vocabulary of the values."""
    rows, types = datastore.metrics["rows"], tokens.metrics["vocabulary_size"]
    return {
        "datastore.zarr/keys": Expected((rows, datastore.metrics["dim"]), (datastore.metrics["dtype"],), finite),
        "datastore.zarr/values": Expected((rows,), ("int32",), between(0, types, "ids of the vocabulary")),
    }.get(name)


def built_arrays(datastore: "Artifact", name: str) -> Expected | None:
    """The arrays of a datastore of one split."""
    return row_arrays(datastore, name, datastore.input("corpus"))


def updated_arrays(datastore: "Artifact", name: str) -> Expected | None:
    """The arrays of a datastore that was made from another one, which also has the text of its rows."""
    rows, documents = datastore.metrics["rows"], datastore.metrics.get("documents", 0)
    text = {
        "doc_offsets": Expected((documents + 1,), ("int64",), offsets(rows)),
        "paragraph_ends": Expected((None,), ("int64",), between(1, rows + 1, "ends of paragraphs")),
        "paragraph_hashes": Expected((None,), ("uint64",), anything),
        "runs": Expected((None, 3), ("int64",), between(0, 2**53, "rows, sources and places")),
    }
    found = text.get(name.removeprefix("datastore.zarr/"))
    return found or row_arrays(datastore, name, datastore.input("encoder").input("tokens"))


BUILT, UPDATED = Schema(DatastoreFigures, built_arrays), Schema(DatastoreFigures, updated_arrays)
