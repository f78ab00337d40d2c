"""Opens the inputs of a training run: the splits of its tokens, and what other stages made for its method."""

from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.methods.config import TRAIN, VALID
from stages.methods.method import SideInputs
from stages.text.tokens import start_id
from stages.training.config import TrainConfig
from stages.training.mapped import mapped
from stages.training.neighbors import DTYPE, map_neighbors
from stages.training.progress import Splits
from stages.training.sources import splits_read


def read_splits(tokens: Artifact, folder: Path) -> Splits:
    """The training split, mapped into `folder`, and the validation split if there is one."""
    arrays: Any = tokens.zarr("tokens.zarr")
    ids = arrays[f"{TRAIN}/ids"]
    train = mapped(folder / f"ids-{TRAIN}.npy", ids.shape, ids.dtype, lambda start, stop: ids[start:stop])
    documents = np.asarray(arrays[f"{TRAIN}/doc_offsets"][:])
    if VALID not in splits_read(tokens):
        return Splits(train, None, start_id(tokens.metrics), documents)
    valid, its_documents = (np.asarray(arrays[f"{VALID}/{name}"][:]) for name in ("ids", "doc_offsets"))
    return Splits(train, valid, start_id(tokens.metrics), documents, its_documents)


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
