"""Opens the inputs of a training run: examples, the model, and what other stages made for its method."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Execution, Inputs
from stages.errors import UsageError
from stages.examples.corpus import Corpus
from stages.methods import METHODS
from stages.methods.config import TRAIN, VALID
from stages.methods.method import SideInputs
from stages.models.devices import resolve_device, tune_allocator
from stages.models.language_model import LanguageModel, start_from
from stages.models.vocabulary import AdaptiveVocabulary
from stages.models.windows import WindowSettings
from stages.training.config import TrainConfig
from stages.training.low_rank import add_factors
from stages.training.mapped import mapped
from stages.training.neighbors import DTYPE, map_neighbors
from stages.training.ranks import make_fabric
from stages.training.run import Run
from stages.training.sources import splits_read


def open_run(config: TrainConfig, inputs: Inputs, execution: Execution, folder: Path | None) -> Run:
    """Open what is trained, with checkpoints in `folder`, which the first rank tells the others."""
    tune_allocator()
    fabric = make_fabric(resolve_device(execution.device))
    folder = Path(fabric.broadcast(str(folder)))
    with fabric.rank_zero_first():
        corpus, side_inputs = read_corpus(inputs["tokens"], folder), open_side_inputs(inputs, config, folder)
    learns_text = config.method_settings.learns == "text"
    if not learns_text and fabric.world_size > 1:
        raise UsageError(f"Method {config.method!r} learns in one process: start it without torchrun.")
    cutting = config.model.cutting(WindowSettings(config.segment_length, config.segment_length))
    return Run(
        fabric,
        config,
        _make_model(config, inputs, corpus, fabric.global_rank),
        METHODS.load(config.method)(config.method_settings, side_inputs),
        corpus.tasks(TRAIN, cutting, config.order),
        corpus.examples(VALID, cutting) if VALID in splits_read(inputs["tokens"]) and learns_text else None,
        folder,
        execution.reporter,
        execution.checkpoint_seconds,
    )


def read_corpus(tokens: Artifact, folder: Path) -> Corpus:
    """The splits that training reads: ids of the training split are mapped into `folder`, all else is in memory."""
    stored, arrays = Corpus.of(tokens), dict[str, Any]()
    for split in splits_read(tokens):
        for name in stored.read:
            array = stored.arrays[f"{split}/{name}"]
            large = split == TRAIN and name.endswith("ids")
            arrays[f"{split}/{name}"] = (
                _mapped(array, folder / f"{name}-{split}.npy") if large else np.asarray(array[:])
            )
    return Corpus.of(tokens, arrays)


def _mapped(array: Any, path: Path) -> np.ndarray:
    return mapped(path, array.shape, array.dtype, lambda start, stop: array[start:stop])


def _make_model(config: TrainConfig, inputs: Inputs, corpus: Corpus, rank: int) -> LanguageModel:
    """The model before the first step, the same on every rank; each rank then draws its own dropout."""
    torch.manual_seed(config.seed)
    model = LanguageModel(config.model)
    if "init" in inputs:
        start_from(model, inputs["init"].file("model.safetensors"))
    elif isinstance(model.vocabulary, AdaptiveVocabulary):
        model.vocabulary.sort_by(_token_counts(corpus.arrays[f"{TRAIN}/ids"], len(model.vocabulary.rank)))
    if config.lora is not None:
        add_factors(model, config.lora)
    torch.manual_seed(config.seed + rank)
    return model


def _token_counts(ids: np.ndarray, types: int) -> Tensor:
    """How often each of the token types occurs, int64 [types]."""
    counts = torch.zeros(types, dtype=torch.int64)
    for start in range(0, len(ids), 1 << 22):
        counts += torch.from_numpy(np.bincount(ids[start : start + (1 << 22)], minlength=types))
    return counts


def open_side_inputs(inputs: Inputs, config: TrainConfig, folder: Path) -> SideInputs:
    """The packing, or the neighbours, that a run was given; large arrays are mapped into `folder`."""
    if "batches" in inputs:
        packed: Any = inputs["batches"].zarr("batches.zarr")
        return SideInputs(packing=np.asarray(packed["order"][:]))
    if "neighbors" in inputs:
        splits = splits_read(inputs["tokens"])
        return SideInputs(
            neighbor_tokens=map_neighbors(inputs["neighbors"], splits, config.method_settings.neighbors_read, folder)
        )
    return SideInputs()


def mapped_bytes(inputs: Inputs, config: TrainConfig) -> int:
    """Room that the mapped arrays of a run take until it ends."""
    splits = inputs["tokens"].metrics["splits"]
    looked_up = sum(int(splits[split]["tokens"]) for split in splits_read(inputs["tokens"]))
    return (int(splits[TRAIN]["tokens"]) + looked_up * config.method_settings.neighbors_read) * DTYPE.itemsize


def passing_bytes(inputs: Inputs) -> int:
    """Room that is taken only while the mapped arrays are made, before the first step."""
    if "neighbors" not in inputs:
        return 0
    return int(inputs["neighbors"].find("datastore").metrics["rows"]) * DTYPE.itemsize
