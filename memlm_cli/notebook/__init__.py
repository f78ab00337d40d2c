"""memlm in Python (`import memlm`): models, datastores, indexes and readings over arrays; stores,
stages, artifacts.

`docs/how-to/notebook.md` lists the public names; the errors of the exit codes are public, too.
Names that need torch are imported at first use.
"""

from typing import TYPE_CHECKING, Any

from memlm_cli.notebook.artifacts import Artifact, Model, Neighbors, Page, Report, Tokens
from memlm_cli.notebook.store import Store, open, run
from stages.errors import ArtifactError, BusyError, DataError, MemlmError, ResourceError, UsageError
from stages.models.layers import STREAM_ATTENTION
from stages.registry import Part, load
from stages.retrieval.arrays import Datastore, Index

if TYPE_CHECKING:
    from memlm_cli.notebook.reader import Reader, Scores
    from stages.encoding.scoring import score_ids
    from stages.memory.entries import Entries
    from stages.models.config import StateArray
    from stages.models.language_model import LanguageModel, new_model
    from stages.models.layers.settings import AttentionConfig, StreamAttentionSettings
    from stages.models.layers.sublayer import (
        Attended,
        SegmentContext,
        StreamAttention,
        StreamInputs,
    )
    from stages.retrieval.read import interpolate, perplexity, read, recent, tune

LATER = {
    "memlm_cli.notebook.reader": ("Reader", "Scores"),
    "stages.encoding.scoring": ("score_ids",),
    "stages.memory.entries": ("Entries",),
    "stages.models.config": ("StateArray",),
    "stages.models.language_model": ("LanguageModel", "new_model"),
    "stages.models.layers.settings": ("AttentionConfig", "StreamAttentionSettings"),
    "stages.models.layers.sublayer": (
        "Attended",
        "SegmentContext",
        "StreamAttention",
        "StreamInputs",
    ),
    "stages.retrieval.read": ("interpolate", "perplexity", "read", "recent", "tune"),
}
"""Names that need torch -> their modules."""

__all__ = [
    "STREAM_ATTENTION",
    "Artifact",
    "ArtifactError",
    "Attended",
    "AttentionConfig",
    "BusyError",
    "DataError",
    "Datastore",
    "Entries",
    "Index",
    "LanguageModel",
    "MemlmError",
    "Model",
    "Neighbors",
    "Page",
    "Part",
    "Reader",
    "Report",
    "ResourceError",
    "Scores",
    "SegmentContext",
    "StateArray",
    "Store",
    "StreamAttention",
    "StreamAttentionSettings",
    "StreamInputs",
    "Tokens",
    "UsageError",
    "interpolate",
    "new_model",
    "open",
    "perplexity",
    "read",
    "recent",
    "run",
    "score_ids",
    "tune",
]


def __getattr__(name: str) -> Any:
    for module, names in LATER.items():
        if name in names:
            return load(f"{module}:{name}")
    raise AttributeError(f"module 'memlm' has no attribute {name!r}")
