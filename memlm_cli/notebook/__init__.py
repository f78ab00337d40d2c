"""memlm in Python: the store, every stage, and models with their memories, for notebooks (`import memlm`).

What is public is what `docs/how-to/notebook.md` lists, and the errors of the exit codes. Nothing here computes: a
stage is run by its command, and texts are read by what `inspect` and `generate` use.
"""

from memlm_cli.notebook.artifacts import Artifact, Datastore, Index, Model, Neighbors, Tokens
from memlm_cli.notebook.pages import Page
from memlm_cli.notebook.reader import Reader, Scores
from memlm_cli.notebook.report import Report
from memlm_cli.notebook.store import Store, open, run
from stages.errors import ArtifactError, BusyError, DataError, MemlmError, ResourceError, UsageError

__all__ = [
    "Artifact",
    "ArtifactError",
    "BusyError",
    "DataError",
    "Datastore",
    "Index",
    "MemlmError",
    "Model",
    "Neighbors",
    "Page",
    "Reader",
    "Report",
    "ResourceError",
    "Scores",
    "Store",
    "Tokens",
    "UsageError",
    "open",
    "run",
]
