"""How the rows of a datastore are laid out and made, whoever makes them."""

from typing import TYPE_CHECKING, NamedTuple

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.encoding.window_settings import shard_unit
from stages.errors import ArtifactError, UsageError
from stages.models.config import model_of

if TYPE_CHECKING:
    import numpy as np

VALUE_DTYPE = "int32"
POOLED_ROWS = 4096
"""Most rows of a shard where every key has a window of its own: a row then takes as long as a whole window."""


class RowLayouts(NamedTuple):
    """The arrays of rows: keys [T, d], values [T], cut into the same shards."""

    keys: ArrayLayout
    values: ArrayLayout

    @classmethod
    def of(cls, encoder: Artifact, rows: int, dtype: str, stride: int) -> "RowLayouts":
        """The layouts of a number of rows that a model makes."""
        import numpy as np

        model = model_of(encoder)
        width = model.width
        per_shard = rows_per_shard(width * np.dtype(dtype).itemsize, shard_unit(encoder, stride))
        if model.pools:
            per_shard = min(per_shard, POOLED_ROWS)
        return cls(
            ArrayLayout("datastore.zarr/keys", (rows, width), dtype, per_shard),
            ArrayLayout("datastore.zarr/values", (rows,), VALUE_DTYPE, per_shard),
        )

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


def require_finite(keys: "np.ndarray", encoder: Artifact) -> None:
    """Raises: UsageError if keys overflow float16; ArtifactError if the model makes no numbers."""
    import numpy as np

    if np.isfinite(keys).all():
        return
    if keys.dtype == np.float16:
        raise UsageError(f"Keys of {encoder.reference} overflow float16: run again with --dtype float32.")
    raise ArtifactError(f"Keys of {encoder.reference} are not finite numbers: train the model again.")
