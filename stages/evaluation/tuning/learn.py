"""How the weight of a row's last reading is learned from what the tuning split left, and kept."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.figures.range_scores import RowSettings
from stages.memory.search_gate import SearchGate, fit_gain, thresholds
from stages.memory.small_network import SmallNetwork
from stages.memory.weight_network import Positions, WeightNetwork, learn
from stages.retrieval.weight_inputs import CONTEXT, NEIGHBORS
from stages.threads import shared_out

SHARES = tuple(tenth / 10 for tenth in range(1, 10))
"""Shares of tokens that are searched for, of which perplexity is reported."""


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


def learn_weight(files: Sequence[Path], weight: float, off: float, searched: float | None) -> dict[str, Any]:
    """The record of a weight that is learned, JSON; see `stages.evaluation.figures.learned_weight`.

    It is learned in one thread, so that as many as there are make no difference in the last digits.

    Args:
        weight: the best for all contexts of those that read memory.
        off: that at which memory changes nothing, if that is better still. The better of both is read where the network
            does not gain for sure.
        searched: share of the tokens that are searched for; None: on top of other readings all are, and nothing is
            learned of that.
    """
    with shared_out(small=True):
        return _learned(load_positions(files), weight, off, searched)


def _learned(positions: Positions, weight: float, off: float, searched: float | None) -> dict[str, Any]:
    one_for_all = positions.read_with(weight)
    helps = bool(one_for_all.sum() > positions.log_p.sum())
    learned = learn(positions, weight, one_for_all if helps else positions.log_p)
    network = learned.network if learned is not None and learned.sure else None
    read = network is not None or helps
    final = one_for_all if network is None else positions.read(network.logits(positions.inputs))
    gated = searched is not None and learned is not None and read
    return {
        "weight": weight if helps else off,
        "tokens": len(positions),
        "gains": [] if learned is None else learned.gains,
        "network": None if network is None else network.record,
        "gate": _learn_gate(positions, final, searched or 1.0) if gated else None,
    }


def _learn_gate(positions: Positions, read: Tensor, searched: float) -> dict[str, Any]:
    """Fit a predictor of gains, and find the gain where searches begin, for each share of the tokens, JSON.

    Args:
        read: log p of the targets with the memory read.
    """
    contexts = positions.inputs[:, : len(CONTEXT)]
    predicts = fit_gain(contexts, read - positions.log_p)
    shares = [*(share for share in SHARES if share < searched), *([searched] if searched < 1 else [])]
    found = thresholds(predicts.outputs(contexts), shares)
    return {"network": predicts.record, "shares": shares, "thresholds": found, "searched": searched}


def with_learned(settings: RowSettings, record: Mapping[str, Any] | None) -> RowSettings:
    """The settings of a row with what is learned, by its record; None: nothing is."""
    if record is None:
        return settings
    *others, last = settings.points
    network = None if record["network"] is None else WeightNetwork.of_record(record["network"])
    settings = replace(settings, points=(*others, last._replace(weight=record["weight"])), network=network)
    gate = record["gate"]
    if gate is None:
        return settings
    predicts, ends = SmallNetwork.of_record(gate["network"]), gate["thresholds"]
    opens = SearchGate(predicts, ends[-1]) if gate["searched"] < 1 else None
    return replace(settings, gains=predicts, thresholds=ends, gate=opens)
