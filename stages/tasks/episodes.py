"""Settings and schema of build-episodes: the key and the label of each document. Free of torch."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.schema import Expected, Figures, Positive, Schema, between, finite
from stages.config import StageConfig
from stages.models.config import BackboneConfig

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

ROWS = 512
"""Documents of a shard."""
KEYS = "episodes.zarr/keys"
LABELS = "episodes.zarr/labels"


class EpisodesConfig(StageConfig):
    """Settings of build-episodes."""

    runs_models = True

    split: str = "train"
    """Split whose documents are stored."""
    pool: Literal["encoder", "mean", "last", "first"] | None = None
    """How a document becomes its key: by the encoder's own library (sentence-transformers), or by
    pooling hidden states. None: `encoder` for an imported encoder, else `mean`.
    """
    normalize: bool = False
    """Scale each key to length 1; an encoder whose folder ends in Normalize does so anyway."""
    length: Annotated[int, Field(gt=0)] | None = None
    """Tokens of a document that are read; None: as many as an imported encoder reads, else the
    segment length of the model.
    """


class EpisodesFigures(Figures):
    """Metrics of episodes."""

    rows: Positive
    dim: Positive


def key_width(model: BackboneConfig, config: EpisodesConfig) -> int:
    """Numbers in a key, d."""
    return model.key_width if config.pool in (None, "encoder") else model.width


def layouts(rows: int, dim: int) -> tuple[ArrayLayout, ArrayLayout]:
    """Arrays of keys float32 [D, d] and labels int32 [D]."""
    return ArrayLayout(KEYS, (rows, dim), "float32", ROWS), ArrayLayout(
        LABELS, (rows,), "int32", ROWS
    )


def _arrays(episodes: "Artifact", name: str) -> Expected | None:
    rows = episodes.metrics["rows"]
    dim = episodes.metrics["dim"]
    labels: list[Any] = episodes.input("corpus").metrics["labels"]
    return {
        KEYS: Expected((rows, dim), ("float32",), finite),
        LABELS: Expected((rows,), ("int32",), between(-1, len(labels), "labels")),
    }.get(name)


EPISODES = Schema(EpisodesFigures, _arrays)
