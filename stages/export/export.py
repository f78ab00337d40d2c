"""A model of the store as a folder that transformers reads: weights, settings, tokenizer and card."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.export import FORMS
from stages.export.card import card
from stages.export.folder import CARD, check_export_folder, new_folder
from stages.export.form import Form
from stages.export.tokenizer import write_tokenizer
from stages.lineage.corpus import require_scoring
from stages.models.config import model_of

Write = Callable[[Artifact, int | None, Path], Form]
"""Writes weights and settings of a model into a folder; see `FORMS`."""


@dataclass(frozen=True)
class Exported:
    """Files that were written."""

    folder: Path
    form: Form
    files: list[str]


def export(model: Artifact, folder: Path, positions: int | None = None) -> Exported:
    """Write a model as transformers has it; its memory, if it reads one, stays in the store.

    Args:
        positions: of a model with sinusoidal positions, how many become a table; None: those of a segment.
    Raises: UsageError for a model that transformers has no form of, or a folder that is somebody else's.
    """
    write = _form_of(model)
    check_export_folder(folder)
    with new_folder(folder) as draft:
        form = write(model, positions, draft)
        write_tokenizer(model.input("tokens"), form.longest, draft)
        (draft / CARD).write_text(card(model, form), "utf-8")
    return Exported(folder, form, sorted(path.name for path in folder.iterdir()))


def _form_of(model: Artifact) -> Write:
    """Find the writer for a model's backbone. Raises: UsageError or ArtifactError, saying why, if there is none."""
    config = model_of(require_scoring(model))
    if config.reads_neighbors:
        raise UsageError(
            f"{model.reference} has a gate that lets neighbours' tokens in (SPALM), and no model of transformers has."
        )
    if config.backbone not in FORMS:
        raise UsageError(
            f"{model.reference} is of backbone {config.backbone!r}, and transformers has no such model; exported are: "
            f"{', '.join(FORMS.names())}."
        )
    write: Write = FORMS.load(config.backbone)
    return write
