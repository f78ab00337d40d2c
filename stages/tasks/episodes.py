"""Settings and schema of build-episodes: the key and the label of each document. Free of torch."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.schema import Expected, Figures, Positive, Schema, between, finite
from stages.config import StageConfig
from stages.models.head_settings import Pool

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

ROWS = 512
"""Documents of a shard."""
KEYS, LABELS = "episodes.zarr/keys", "episodes.zarr/labels"


class EpisodesConfig(StageConfig):
    """Settings of build-episodes."""

    runs_models = True

    split: str = "train"
    """Split whose documents are stored."""
    pool: Pool = "mean"
    """How the final hidden states of a document become its key."""
    length: Annotated[int, Field(gt=0)] | None = None
    """Tokens of a document that are read; None: the segment length of the encoder."""


class EpisodesFigures(Figures):
    """Metrics of episodes."""

    rows: Positive
    dim: Positive


def layouts(rows: int, dim: int) -> tuple[ArrayLayout, ArrayLayout]:
    """Arrays of keys float32 [D, d] and labels int32 [D]."""
    return ArrayLayout(KEYS, (rows, dim), "float32", ROWS), ArrayLayout(
        LABELS, (rows,), "int32", ROWS
    )


def _arrays(episodes: "Artifact", name: str) -> Expected | None:
    rows, dim = episodes.metrics["rows"], episodes.metrics["dim"]
    labels: list[Any] = episodes.input("corpus").metrics["labels"]
    return {
        KEYS: Expected((rows, dim), ("float32",), finite),
        LABELS: Expected((rows,), ("int32",), between(-1, len(labels), "labels")),
    }.get(name)


EPISODES = Schema(EpisodesFigures, _arrays)
