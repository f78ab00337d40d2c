"""A control of hashed n-grams: the rows of n-grams that ended far before each position.

Tables are as large, as often read and as often learnt. But a row says nothing about the latest
tokens. What is gained beside it is what n-grams say, not weights.
"""

from typing import Annotated, Literal

from jaxtyping import Int64
from pydantic import Field
from torch import Tensor

from stages.models.layers import LOOKUP
from stages.models.layers.hashed_ngrams import HashedNgrams
from stages.models.layers.memory_settings import HashedNgramsSettings
from stages.registry import Part

MODULE = "tests.benchmarks.earlier_ngrams"
NAME = "earlier-ngrams"


class EarlierNgramsSettings(HashedNgramsSettings):
    """Hashed n-grams that ended `distance` tokens before, in a stream."""

    name: Literal["earlier-ngrams"] = "earlier-ngrams"  # type: ignore[assignment]
    distance: Annotated[int, Field(gt=0)] = 256
    """Tokens between the end of an n-gram and the position that reads its row."""
    scope: Literal["stream"] = "stream"

    @property
    def before(self) -> int:
        return super().before + self.distance


class EarlierNgrams(HashedNgrams):
    """Reads the rows of `HashedNgrams` that belong to an earlier position."""

    settings: EarlierNgramsSettings

    def slots(
        self, tokens: Int64[Tensor, "b m"], document_offset: Int64[Tensor, "b n"] | None
    ) -> Int64[Tensor, "b n h"]:
        return super().slots(tokens[:, : -self.settings.distance], document_offset)


LOOKUP.targets[NAME] = Part(f"{MODULE}:EarlierNgramsSettings", f"{MODULE}:EarlierNgrams")
