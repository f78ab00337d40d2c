"""The weights that did best on the validation split, in a file beside the checkpoint."""

from pathlib import Path

from stages.artifacts.checksums import file_entry
from stages.artifacts.durable import fsync
from stages.models.language_model import LanguageModel, save_weights
from stages.training.checkpoint import CHECKPOINT, damaged_checkpoint
from stages.training.low_rank import whole_weights
from stages.training.progress import Progress


def best_weights(step: object) -> str:
    """Name of the file with the weights that did best, at `step`."""
    return f"best-{step}.safetensors"


def save_best(model: LanguageModel, folder: Path, step: int) -> str:
    """Write the weights of a step that does best so far; those of others stay until `drop_others`.

    Returns: the BLAKE2b of the file.
    """
    file = folder / best_weights(step)
    save_weights(whole_weights(model), file)
    fsync(file)
    return file_entry(file)["blake2b"]


def best_file(folder: Path, progress: Progress) -> Path | None:
    """The weights that did best, if there was a validation.

    Raises: ArtifactError if the file is not as it was saved.
    """
    if progress.valid_step is None:
        return None
    file = folder / best_weights(progress.valid_step)
    if progress.valid_digest is not None and not (
        file.is_file() and file_entry(file)["blake2b"] == progress.valid_digest
    ):
        raise damaged_checkpoint(folder / CHECKPOINT, f"{file.name} is not as it was saved")
    return file


def drop_others(folder: Path, progress: Progress) -> None:
    """Remove the weights of steps that did best before; no checkpoint speaks of them any more."""
    for path in folder.glob(best_weights("*")):
        if path.name != best_weights(progress.valid_step):
            path.unlink()
