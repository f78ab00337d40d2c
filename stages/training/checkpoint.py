"""Checkpoints: one file, replaced atomically, with all that a run needs to resume as if it had not
stopped.

Next to it lie the weights with the lowest validation loss.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from stages.artifacts.checksums import file_entry
from stages.artifacts.durable import fsync, replacing_by_name
from stages.errors import ArtifactError
from stages.methods.config import after_file
from stages.methods.method import Carried
from stages.models.backbone import named_below
from stages.models.computing import random_state, set_random_state
from stages.models.language_model import LanguageModel
from stages.models.weights import save_weights
from stages.training.journal import LINES, Journal, Progress, is_whole
from stages.training.low_rank import whole_weights
from stages.training.ranks import gather_over_ranks
from stages.training.training_data import Run

CHECKPOINT = "checkpoint.safetensors"
MODEL = "model/"
OPTIMIZER = "optimizer/"
METHOD = "method/"
RANDOM = "random/"
CARRIED = "carried/"


@dataclass
class RankState:
    """State of one process: its random numbers, and the state carried from its latest batch to the
    next.
    """

    random: dict[str, Tensor]
    carried: Carried


class Saved(NamedTuple):
    """Progress, the state carried from a rank's latest batch, and the state of the method."""

    progress: dict[str, Any]
    carried: Carried
    method: Mapping[str, Any]


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: list[RankState],
    progress: dict[str, Any],
    method: Mapping[str, Any],
) -> None:
    """Write weights, optimizer state, the state of each rank, progress as JSON values, and the
    method's state.
    """
    tensors = {MODEL + name: tensor for name, tensor in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"{OPTIMIZER}{index}/{k}": v for k, v in state.items() if isinstance(v, Tensor)}
    tensors |= {METHOD + name: value for name, value in method.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in method.items() if not isinstance(value, Tensor)}
    for rank, states in enumerate(ranks):
        tensors |= {f"{RANDOM}{rank}/{name}": state for name, state in states.random.items()}
        tensors |= {
            f"{CARRIED}{rank}/{name}": tensor for name, tensor in states.carried.tensors().items()
        }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {
        "progress": json.dumps(progress),
        "ranks": str(len(ranks)),
        "method": json.dumps(values),
    }
    # Straight into the file: serialized bytes in memory would double or triple the memory of the
    # state.
    with replacing_by_name(path) as file:
        save_file(tensors, file, header | {"digest": _digest(tensors, header)})


def _digest(tensors: dict[str, Tensor], header: dict[str, str]) -> str:
    """Digest of a whole checkpoint: safetensors has no checksum of its own."""
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():  # torch cannot make a byte view of an empty tensor with stride 0
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int = 0, ranks: int = 1
) -> Saved:
    """Restore model, optimizer and random state from a checkpoint.

    A rank that the saved run did not have keeps its present random state. A different number of
    ranks divides the streams differently: then no state is carried over.

    Returns: the rest of the checkpoint, on the CPU.
    Raises: ArtifactError if the file cannot be read.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = file.metadata()
        if header.pop("digest") != _digest(tensors, header):
            raise ValueError("it does not hold what was saved")
        progress: dict[str, Any] = json.loads(header["progress"])
        # Tensors of a method are stored apart from its other values, since safetensors holds only
        # tensors.
        saved_ranks = int(header["ranks"])
        method = json.loads(header["method"]) | named_below(tensors, METHOD)
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged_checkpoint(path, str(error)) from error
    model.load_state_dict(named_below(tensors, MODEL))
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in named_below(tensors, OPTIMIZER).items():
        index, key = name.split("/")
        states.setdefault(int(index), {})[key] = tensor
    # Groups and their rates follow from the settings; only moments are restored.
    optimizer.load_state_dict(
        {"state": states, "param_groups": optimizer.state_dict()["param_groups"]}
    )
    random = named_below(tensors, f"{RANDOM}{rank}/")
    if random:
        set_random_state(random)
    carried = named_below(tensors, f"{CARRIED}{rank}/") if saved_ranks == ranks else {}
    # A copy is aligned for vector registers, as in the original run: otherwise products differ in
    # the last bit.
    return Saved(
        progress, Carried.of({name: tensor.clone() for name, tensor in carried.items()}), method
    )


def damaged_checkpoint(checkpoint: Path, problem: str) -> ArtifactError:
    """Build the error of a run that cannot resume from its checkpoint."""
    return ArtifactError(
        f"The checkpoint {checkpoint} is damaged ({problem}); remove it, and the same command trains from the "
        "beginning."
    )


def best_weights(step: object) -> str:
    """Name of the file with the best weights, those of `step`."""
    return f"best-{step}.safetensors"


def save_best(model: LanguageModel, folder: Path, step: int) -> str:
    """Write the best weights so far; files of earlier steps stay until the next checkpoint.

    Returns: the BLAKE2b of the file.
    """
    file = folder / best_weights(step)
    save_weights(whole_weights(model), file)
    # Before the checkpoint that names the file: after a crash in between, no name lacks its file.
    fsync(file)
    return file_entry(file)["blake2b"]


def best_file(folder: Path, progress: Progress) -> Path | None:
    """The file of the best weights, if there was a validation.

    Raises: ArtifactError if the file is not as it was saved.
    """
    if progress.valid_step is None:
        return None
    file = folder / best_weights(progress.valid_step)
    if not (file.is_file() and file_entry(file)["blake2b"] == progress.valid_digest):
        raise damaged_checkpoint(folder / CHECKPOINT, f"{file.name} is not as it was saved")
    return file


class Saver:
    """Saves a run in its folder, and restores it."""

    def __init__(self, run: Run, optimizer: torch.optim.Optimizer) -> None:
        self._run = run
        self._optimizer = optimizer
        self._path = run.folder / CHECKPOINT
        self._saved_at = time.monotonic()

    def is_due(self, progress: Progress) -> bool:
        """Whether to save after a step: at the end, when the interval is over, or with the best
        weights so far.
        """
        return (
            progress.step == self._run.config.steps
            or time.monotonic() - self._saved_at >= self._run.checkpoint_seconds
            or progress.valid_step == progress.step
        )

    def save(self, progress: Progress, journal: Journal | None, carried: Carried) -> None:
        """Write a checkpoint; every process must call this, and the first one writes."""
        run = self._run
        method = self._run.method
        ranks = gather_over_ranks(run.fabric, RankState(random_state(), carried.each(Tensor.cpu)))
        if journal is not None:
            progress.journal_bytes, progress.journal_digest = journal.sync()
            fsync(
                run.folder
                # Names of journal and best weights come to the disk before a checkpoint refers to them.
            )
            state = method.state_dict()
            save_checkpoint(self._path, run.model, self._optimizer, ranks, asdict(progress), state)
            # Only now: until the new checkpoint is on disk, the previous one and its weights may be
            # needed.
            for path in run.folder.glob(best_weights("*")):
                if path.name != best_weights(progress.valid_step):
                    path.unlink()
        self._saved_at = time.monotonic()

    def saved_step(self) -> int:
        """The step of the checkpoint in the folder; 0: there is none.

        Raises: ArtifactError if the checkpoint cannot be read.
        """
        if not self._path.is_file():
            return 0
        try:
            with safe_open(self._path, "pt") as file:
                return int(json.loads(file.metadata()["progress"])["step"])
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise damaged_checkpoint(self._path, str(error)) from error

    def restore(self) -> tuple[Progress, Carried]:
        """Restore the run from its folder.

        Returns: its progress, at the start if the folder is empty; and the state carried from its
        latest batch.

        Raises: ArtifactError if the checkpoint, or a file that it names, has changed since.
        """
        if not self._path.is_file():
            return Progress(), Carried()
        run = self._run
        fabric = self._run.fabric
        saved = load_checkpoint(
            self._path, run.model, self._optimizer, fabric.global_rank, fabric.world_size
        )
        try:
            progress = Progress(**saved.progress)
            run.method.load_state_dict(saved.method)
        except (KeyError, TypeError) as error:  # another version of the package keeps more, or less
            raise damaged_checkpoint(
                self._path, f"it was saved by another version: {error}"
            ) from error
        if fabric.is_global_zero:
            best_file(run.folder, progress)
            if not is_whole(run.folder, progress.journal_bytes, progress.journal_digest):
                raise damaged_checkpoint(self._path, f"{LINES} is not as it was saved")
        run.reporter.info(f"resumed: {progress.step} of {run.config.steps} steps")
        return progress, saved.carried.each(lambda tensor: tensor.to(fabric.device))


def save_after(model: LanguageModel, folder: Path, place: int) -> None:
    """Write the weights after the task at a place; a run resumed before it writes the same bytes
    again.
    """
    file = folder / after_file(place)
    file.parent.mkdir(exist_ok=True)
    with replacing_by_name(file) as unfinished:
        save_weights(whole_weights(model), unfinished)
