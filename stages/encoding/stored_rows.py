"""Rows of a datastore: their layout, their checks, and the schema of the written arrays."""

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.schema import (
    Count,
    Expected,
    Figures,
    Positive,
    Schema,
    anything,
    between,
    finite,
    offsets,
)
from stages.encoding.window_settings import shard_unit
from stages.errors import ArtifactError, UsageError
from stages.models.config import model_of

if TYPE_CHECKING:
    import numpy as np

VALUE_DTYPE = "int32"
POOLED_ROWS = 4096
"""Maximum rows of a shard if every key has its own window: a row then takes as long as a whole
window.
"""


class RowLayouts(NamedTuple):
    """Layouts of the arrays of rows: keys [T, d] and values [T], cut into the same shards."""

    keys: ArrayLayout
    values: ArrayLayout

    @classmethod
    def of(cls, encoder: Artifact, rows: int, dtype: str, stride: int) -> "RowLayouts":
        """The layouts of `rows` rows made by a model."""
        import numpy as np

        model = model_of(encoder)
        width = model.key_width
        per_shard = rows_per_shard(width * np.dtype(dtype).itemsize, shard_unit(encoder, stride))
        if model.pools:
            per_shard = min(per_shard, POOLED_ROWS)
        return cls(
            ArrayLayout("datastore.zarr/keys", (rows, width), dtype, per_shard),
            ArrayLayout("datastore.zarr/values", (rows,), VALUE_DTYPE, per_shard),
        )

    @property
    def rows(self) -> int:
        return self.keys.shape[0]

    @property
    def dim(self) -> int:
        """Width of keys, d."""
        return self.keys.shape[1]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


def require_finite(keys: "np.ndarray", encoder: Artifact) -> None:
    """Check that all keys are finite numbers.

    Raises: UsageError if keys overflow float16; ArtifactError if the model's keys are not
    finite.
    """
    import numpy as np

    if np.isfinite(keys).all():
        return
    # float16 ends at 65,504: larger values were rounded to infinity.
    if keys.dtype == np.float16:
        raise UsageError(
            f"Keys of {encoder.reference} overflow float16: run again with --dtype float32."
        )
    raise ArtifactError(
        f"Keys of {encoder.reference} are not finite numbers: train the model again."
    )


class DatastoreFigures(Figures):
    """Metrics of a datastore."""

    rows: Positive
    dim: Annotated[int, Field(gt=0, lt=2**31)]
    dtype: Literal["float16", "float32"]
    added: Count = 0
    documents: Count = 0


def row_arrays(datastore: "Artifact", name: str, tokens: "Artifact") -> Expected | None:
    """Expected form of keys and values; `tokens` has the vocabulary of the values."""
    rows = datastore.metrics["rows"]
    types = tokens.metrics["vocabulary_size"]
    return {
        "datastore.zarr/keys": Expected(
            (rows, datastore.metrics["dim"]), (datastore.metrics["dtype"],), finite
        ),
        "datastore.zarr/values": Expected(
            (rows,), ("int32",), between(0, types, "ids of the vocabulary")
        ),
    }.get(name)


def updated_arrays(datastore: "Artifact", name: str) -> Expected | None:
    """Expected form of the arrays of an updated datastore, which also has the text of its rows."""
    rows = datastore.metrics["rows"]
    documents = datastore.metrics.get("documents", 0)
    paragraph_ends = between(1, rows + 1, "ends of paragraphs")
    run_numbers = between(0, 2**53, "rows, sources and places")
    text = {
        "doc_offsets": Expected((documents + 1,), ("int64",), offsets(rows)),
        "paragraph_ends": Expected((None,), ("int64",), paragraph_ends),
        "paragraph_hashes": Expected((None,), ("uint64",), anything),
        "runs": Expected((None, 3), ("int64",), run_numbers),
    }
    array = text.get(name.removeprefix("datastore.zarr/"))
    if array is not None:
        return array
    tokens = datastore.input("encoder").input("tokens")
    return row_arrays(datastore, name, tokens)


BUILT = Schema(
    DatastoreFigures, lambda datastore, name: row_arrays(datastore, name, datastore.input("corpus"))
)
"""Schema of a datastore of one split."""
UPDATED = Schema(DatastoreFigures, updated_arrays)
"""Schema of an updated datastore."""
