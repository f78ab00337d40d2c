"""Settings of product-key memory; free of torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.models.config import Size
from stages.models.layers.settings import SublayerSettings

WIDEST_QUERY = 512
"""Width of the paper's queries."""


class ProductKeysSettings(SublayerSettings):
    """A memory of `sub_keys`² learnt slots, of which every head of every position reads the best few.

    Source: Lample et al. 2019 (arXiv:1907.05242).
    """

    name: Literal["product-keys"] = "product-keys"
    heads: Size = 4
    """Queries a position, each with keys of its own; the slots' values are shared."""
    sub_keys: Size = 128
    """n, keys of each half; their pairs are the slots, n² of them."""
    neighbors: Size = 32
    """k, slots that a head reads."""
    query_width: Size | None = None
    """Width of a head's query; None: the width of the model, at most 512."""
    query_norm: Literal["batch", "layer"] = "batch"
    """Over all positions of a batch, each dimension by itself; or over the dimensions of a query."""
    value_lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of the values, the same at every step."""

    @model_validator(mode="after")
    def _halves_and_neighbors_fit(self) -> Self:
        if self.neighbors > self.sub_keys:
            raise ValueError(f"neighbors {self.neighbors} is more than sub_keys; {self.sub_keys} is the most")
        if self.query_width is not None and self.query_width % 2:
            raise ValueError(f"query_width {self.query_width} has no halves of equal width; {self.query_width + 1} has")
        return self

    @property
    def slots(self) -> int:
        return self.sub_keys**2

    def queries_of(self, width: int) -> int:
        """Width of a head's query in a model of some width: even, for its halves have keys of their own."""
        return self.query_width or max(2, min(WIDEST_QUERY, width) // 2 * 2)
