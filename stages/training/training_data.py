"""Opens the inputs of a training run: examples, the model, and artifacts of other stages for its
method.

Arrays that are read at random stay on disk, so that memory does not grow with the corpus.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import file_entry
from stages.artifacts.durable import replacing_by_name, write_atomically
from stages.artifacts.stage import Execution, Inputs
from stages.errors import UsageError
from stages.examples.examples import Corpus, Examples, Task
from stages.methods import METHODS
from stages.methods.config import TRAIN, VALID
from stages.methods.method import Method
from stages.methods.neighbor_labels import (
    PACKED,
    NeighborLabels,
    NeighborReader,
    neighbor_labels,
)
from stages.models.computing import resolve_device, tune_allocator
from stages.models.config import model_of
from stages.models.growth import NOISE, grown
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import AdaptiveVocabulary
from stages.models.weights import start_from
from stages.reporting import Reporter, Silent
from stages.retrieval.neighbors import neighbor_tokens
from stages.training import INPUTS
from stages.training.config import TrainConfig
from stages.training.inputs import splits_read
from stages.training.low_rank import add_factors
from stages.training.ranks import make_fabric
from stages.training.sizes import packing_of


@dataclass(frozen=True)
class Run:
    """A model, its training data, and the folder with its checkpoints."""

    fabric: Fabric
    config: TrainConfig
    model: LanguageModel
    method: Method
    tasks: Sequence[Task]
    """Tasks in the order of learning; a corpus is a stream of one."""
    valid: Examples | None
    folder: Path
    listener: Reporter
    checkpoint_seconds: float
    logs: Path | None = None
    """Folder for TensorBoard; None: nothing is written for it."""

    @property
    def keeps_tasks(self) -> bool:
        """Whether the weights after each task are kept."""
        return self.config.order is not None and self.fabric.is_global_zero

    @property
    def reporter(self) -> Reporter:
        """The reporter of the first process; other processes are silent."""
        return self.listener if self.fabric.is_global_zero else Silent()


def open_run(
    config: TrainConfig,
    inputs: Inputs,
    execution: Execution,
    folder: Path | None,
    logs: Path | None = None,
) -> Run:
    """Open model and data, with checkpoints in `folder`; the first rank sends its path to the
    others, and alone writes `logs`.
    """
    tune_allocator()
    fabric = make_fabric(resolve_device(execution.device))
    folder = Path(fabric.broadcast(str(folder)))
    # The first process writes the files that all processes map.
    with fabric.rank_zero_first():
        corpus = read_corpus(inputs["tokens"], folder)
        side_inputs = open_side_inputs(inputs, config, folder)
    learns_text = config.method_settings.learns == "text"
    if not learns_text and fabric.world_size > 1:
        raise UsageError(
            f"Method {config.method!r} learns in one process: start it without torchrun."
        )
    cutting = config.cutting
    return Run(
        fabric,
        config,
        _make_model(config, inputs, corpus, fabric.global_rank),
        METHODS.load(config.method)(config.method_settings, side_inputs),
        corpus.tasks(TRAIN, cutting, config.order),
        corpus.examples(VALID, cutting)
        if VALID in splits_read(inputs["tokens"]) and learns_text
        else None,
        folder,
        execution.reporter,
        execution.checkpoint_seconds,
        logs,
    )


def read_corpus(tokens: Artifact, folder: Path) -> Corpus:
    """The splits that training reads: ids of the training split are mapped from `folder`, the rest
    is in memory.
    """
    stored = Corpus.of(tokens)
    arrays = dict[str, Any]()
    for split in splits_read(tokens):
        for name in stored.read:
            array = stored.arrays[f"{split}/{name}"]
            if split == TRAIN and name.endswith("ids"):  # these are large
                rows = partial(_rows, array)
                arrays[f"{split}/{name}"] = mapped(
                    folder / f"{name}-{split}.npy", array.shape, array.dtype, rows
                )
            else:
                arrays[f"{split}/{name}"] = array[:]
    return Corpus.of(tokens, arrays)


def _rows(array: Any, start: int, stop: int) -> np.ndarray:
    return np.asarray(array[start:stop])


def _make_model(config: TrainConfig, inputs: Inputs, corpus: Corpus, rank: int) -> LanguageModel:
    """The model before the first step, the same on every rank; each rank then draws its own
    dropout.
    """
    # All processes draw the same weights; after that each has its own dropout.
    torch.manual_seed(config.seed)
    model = LanguageModel(config.method_settings.task_model(config.model, 0))
    model.label_smoothing = config.label_smoothing
    if "init" in inputs:
        file = inputs["init"].file("model.safetensors")
        smaller = model_of(inputs["init"])
        if config.wider == config.deeper == 1:
            start_from(model, file)
        else:
            factors = (config.wider, config.deeper, NOISE, config.seed)
            start_from(model, file, lambda weights: grown(weights, smaller, *factors))
    elif isinstance(model.vocabulary, AdaptiveVocabulary):
        model.vocabulary.sort_by(
            _token_counts(corpus.arrays[f"{TRAIN}/ids"], len(model.vocabulary.rank))
        )
    if config.lora is not None:
        add_factors(model, config.lora)
    torch.manual_seed(config.seed + rank)
    return model


def _token_counts(ids: np.ndarray, types: int) -> Tensor:
    """Number of occurrences of each token type, int64 [types]."""
    counts = torch.zeros(types, dtype=torch.int64)
    # In slices, since `bincount` makes an int64 copy of its input.
    for start in range(0, len(ids), 1 << 22):
        counts += torch.from_numpy(np.bincount(ids[start : start + (1 << 22)], minlength=types))
    return counts


def open_side_inputs(inputs: Inputs, config: TrainConfig, folder: Path) -> dict[str, Any]:
    """Inputs of the method besides tokens, by name; large arrays are mapped from files in
    `folder`.
    """
    names = input_names(inputs, config)
    return {name: INPUTS.load(name)(inputs, config, folder) for name in names}


def input_names(inputs: Inputs, config: TrainConfig) -> list[str]:
    """Names in `INPUTS` of what the method of a run reads besides tokens."""
    settings = config.method_settings
    sources = [kind for kind in settings.takes if kind in inputs and kind != "tokens"]
    return [*sources, *settings.indirect_inputs]


def open_packing(inputs: Inputs, config: TrainConfig, folder: Path) -> np.ndarray:
    """Packed segments in order, int64 [S]."""
    return packing_of(inputs)


def open_neighbors(inputs: Inputs, config: TrainConfig, folder: Path) -> dict[str, np.ndarray]:
    """Tokens of neighbours by split; see `map_neighbors`. None for a method that reads none."""
    if not config.method_settings.neighbors_read:
        return {}
    splits = splits_read(inputs["tokens"])
    number = config.method_settings.neighbors_read
    return map_neighbors(inputs["neighbors"], splits, number, folder)


def open_soft_labels(inputs: Inputs, config: TrainConfig, folder: Path) -> NeighborLabels | None:
    """Distributions that neighbours give for the tokens of the training split, mapped; None where
    none are learned.
    """
    settings: Any = config.method_settings
    if not settings.alpha:
        return None
    neighbors = inputs["neighbors"]
    with mapped_values(neighbors, folder) as values:

        def rows(start: int, stop: int) -> np.ndarray:
            reader = NeighborReader(neighbors, settings.k, values())
            labels = neighbor_labels(reader.read(start, stop), settings.temperature)
            return labels.packed()

        positions = int(inputs["tokens"].metrics["splits"][TRAIN]["tokens"])
        shape = (positions, settings.k)
        # Sorting takes several arrays as large as a block.
        at_once = max(1, LABELS_AT_ONCE // settings.k)
        packed = mapped(folder / "soft-labels.npy", shape, PACKED, rows, at_once)
    return NeighborLabels.unpacked(packed)


def open_episode_keys(inputs: Inputs, config: TrainConfig, folder: Path) -> np.ndarray:
    """Keys of the documents of tasks, [documents, d]."""
    return np.asarray(inputs["episodes"].zarr("episodes.zarr")["keys"][:])


def open_background(inputs: Inputs, config: TrainConfig, folder: Path) -> Examples:
    """Examples of the text on which the initial model was trained."""
    return Corpus.of(inputs["init"].input("tokens")).examples(TRAIN, config.cutting)


def mapped_bytes(inputs: Inputs, config: TrainConfig) -> int:
    """Bytes of disk that the mapped arrays of a run take until it ends."""
    tokens = int(inputs["tokens"].metrics["splits"][TRAIN]["tokens"]) * DTYPE.itemsize
    names = input_names(inputs, config)
    return tokens + sum(INPUTS.settings(name)().mapped_bytes(inputs, config) for name in names)


def passing_bytes(inputs: Inputs, config: TrainConfig) -> int:
    """Bytes of disk taken only while the mapped arrays are written, before the first step."""
    names = input_names(inputs, config)
    return sum(INPUTS.settings(name)().passing_bytes(inputs) for name in names)


ROWS = 1 << 18
"""Rows written at a time."""
LABELS_AT_ONCE = 1 << 22
"""Neighbours whose labels are made at a time."""


ReadRows = Callable[[int, int], np.ndarray]
"""Rows start … stop - 1 of an array, for (start, stop)."""


def mapped(
    path: Path, shape: tuple[int, ...], dtype: Any, rows: ReadRows, rows_at_once: int = ROWS
) -> np.ndarray:
    """An array in a file, memory-mapped for reading; the file is written if it is missing or
    changed.

    Args:
        path: an `.npy` file; it appears once it is complete, with its digest in a file next to it.
        rows_at_once: rows that are written together.
    Raises: OSError if it cannot be written; nothing is left behind then.
    """
    if not _is_whole(path):
        with replacing_by_name(path) as unfinished:
            _write(unfinished, shape, np.dtype(dtype), rows, rows_at_once)
            # A crash between the two leaves a file that does not match its digest; it is then
            # written again.
            write_atomically(_digest_file(path), file_entry(unfinished)["blake2b"])
    return np.load(path, mmap_mode="r")


def _is_whole(path: Path) -> bool:
    digest_file = _digest_file(path)
    return (
        path.is_file()
        and digest_file.is_file()
        and digest_file.read_bytes() == file_entry(path)["blake2b"].encode()
    )


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.blake2b")


def _write(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], rows: ReadRows, rows_at_once: int
) -> None:
    """Write an array by ordinary writes: on a full disk, writing through a map would kill the
    process.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, shape[0], rows_at_once):
            block = rows(start, min(start + rows_at_once, shape[0]))
            file.write(np.ascontiguousarray(block, dtype).data)


DTYPE = np.dtype(np.int32)


def map_neighbors(
    neighbors: Artifact, splits: Iterable[str], k: int, folder: Path
) -> dict[str, np.ndarray]:
    """Tokens of the k best neighbours of every token, by split, int32 [T, k], -1 where one is
    missing.

    Args:
        neighbors: an artifact with at least k neighbours for every token of these splits.
        folder: holds the arrays, which are written there if missing. Meanwhile the values of the
            datastore lie there, too.
    """
    group: Any = neighbors.zarr("neighbors.zarr")
    with mapped_values(neighbors, folder) as values:

        def tokens(split: str) -> np.ndarray:
            ids = group[f"{split}/ids"]
            return mapped(
                folder / f"neighbors-{split}.npy",
                (ids.shape[0], k),
                DTYPE,
                lambda start, stop: neighbor_tokens(ids[start:stop][:, :k], values()),
            )

        return {split: tokens(split) for split in splits}


@contextmanager
def mapped_values(neighbors: Artifact, folder: Path) -> Iterator[Callable[[], np.ndarray]]:
    """A function that maps the values of the neighbours' datastore, int32 [N]; a file in `folder`
    holds them until the end.
    """
    values_file = folder / "values.npy"

    @cache
    def values() -> np.ndarray:
        stored: Any = neighbors.find("datastore").zarr("datastore.zarr")["values"]
        return mapped(values_file, stored.shape, DTYPE, partial(_rows, stored))

    yield values
    for file in (values_file, _digest_file(values_file)):
        file.unlink(missing_ok=True)
