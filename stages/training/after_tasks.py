"""Weights after each task of a stream, in files beside the checkpoint."""

from pathlib import Path

from stages.artifacts.durable import fsync
from stages.methods.stream.files import after_file
from stages.models.language_model import LanguageModel, save_weights
from stages.training.low_rank import whole_weights


def save_after(model: LanguageModel, folder: Path, place: int) -> None:
    """Write the weights; a run that is resumed before this place writes the same bytes again."""
    file = folder / after_file(place)
    file.parent.mkdir(exist_ok=True)
    unfinished = file.with_suffix(".tmp")
    save_weights(whole_weights(model), unfinished)
    fsync(unfinished)
    unfinished.replace(file)
    fsync(file.parent)
