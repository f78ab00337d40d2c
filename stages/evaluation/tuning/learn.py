"""How the weight of a row's last reading is learned from what the tuning split left, and kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.memory.weight_network import Learned, Positions, WeightNetwork, learn
from stages.retrieval.weight_inputs import CONTEXT, NEIGHBORS


def save_positions(path: Path, positions: Positions) -> None:
    """Keep positions for `load_positions`: float32 arrays in one file, not compressed."""
    arrays: dict[str, Any] = {name: part.float().cpu().numpy() for name, part in vars(positions).items()}
    with path.open("wb") as file:
        np.savez(file, **arrays)


def load_positions(files: Sequence[Path]) -> Positions:
    """The positions of several files, one after the other, float64 on the CPU."""
    parts = []
    for path in files:
        with np.load(path, allow_pickle=False) as file:
            parts.append(Positions(**{name: torch.from_numpy(file[name]).double() for name in file.files}))
    return Positions.joined(parts)


def positions_bytes(tokens: int) -> int:
    """Size of what `save_positions` keeps of so many tokens, but for the headers of its arrays."""
    return 4 * tokens * (len(CONTEXT) + len(NEIGHBORS) + 2)


def learn_weight(files: Sequence[Path], weight: float) -> dict[str, Any]:
    """The record of a weight that is learned, JSON; see `stages.evaluation.results.learned_weight`.

    Args:
        weight: the best for all contexts, which is read where the network does not gain for sure.
    """
    positions = load_positions(files)
    learned: Learned | None = learn(positions, weight)
    return {
        "weight": weight,
        "tokens": len(positions),
        "gains": [] if learned is None else learned.gains,
        "network": learned.network.record if learned is not None and learned.sure else None,
    }


def network_of(record: Mapping[str, Any] | None) -> WeightNetwork | None:
    """The network of a record; None where the best weight for all contexts is read."""
    return None if record is None or record["network"] is None else WeightNetwork.of_record(record["network"])
