"""Settings of build-datastore, and the arrays that they ask for. Free of torch."""

from typing import Annotated, Literal

from pydantic import Field

from stages.artifacts.stage import Inputs
from stages.encoding.stored_rows import RowLayouts
from stages.examples.cutting import WindowedConfig


class DatastoreConfig(WindowedConfig):
    """Settings of build-datastore."""

    split: str = "train"
    """Split to store."""
    key: Literal["ffn-input", "hidden"] | None = None
    """Representation to search by: input of the last feed-forward block, or the final hidden state;
    None: what the model was trained to search with, else the first of these that it has."""
    dtype: Literal["float16", "float32"] = "float16"
    """Type of the stored keys."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the split to store, from its start."""
    reset: Literal["none", "document"] = "none"
    """Where reading begins anew: nowhere, or at each document, which can then be forgotten whole.
    """
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass."""


def layouts_of(config: DatastoreConfig, inputs: Inputs) -> RowLayouts:
    """Layouts of the keys and values, from the manifests of the inputs."""
    rows = max(1, int(inputs["corpus"].metrics["splits"][config.split]["tokens"] * config.fraction))
    return RowLayouts.of(inputs["encoder"], rows, config.dtype, config.stride or 1)
