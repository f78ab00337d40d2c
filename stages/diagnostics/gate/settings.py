"""What the gate of a model reads and what is told of it, selected before any work. Free of torch."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.lineage.neighbors import require_neighbors

PASSAGE = re.compile(r"([0-9]{1,15}):([0-9]{1,15})")
PASSAGE_TOKENS = 64
LONGEST_PASSAGE = 256
"""Tokens that a heat map has room for."""


class GateSettings(NamedTuple):
    """Numbers of neighbours, the first of which is read, and tokens to show; None for a model without a gate."""

    gate_k: tuple[int, ...] | None = None
    passage: str | None = None

    @property
    def shown(self) -> range:
        """Tokens of the scored split that are shown."""
        start, stop = map(int, (self.passage or "0:0").split(":"))
        return range(start, stop)


def spelled_passage(passage: str) -> str:
    """START:STOP as it is kept. Raises: ValueError if it is not of this form."""
    found = PASSAGE.fullmatch(passage)
    if found is None:
        raise ValueError(f"{passage!r} is no START:STOP, such as 0:64")
    return f"{int(found[1])}:{int(found[2])}"


def resolve_gate(asked: GateSettings, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> GateSettings:
    """Settings filled in: as many neighbours as in training, the first tokens of the split.

    Args:
        read: what the evaluation reads, by role.
        splits: the one that is scored, then the one that is tuned on, if any.
    Raises: UsageError for settings of a gate that the model does not have, or a passage outside the split;
        ArtifactError if the stored neighbours are too few, or hold the answers.
    """
    model = read["model"]
    if "gate_neighbors" not in read:
        for option, value in (("--gate-k", asked.gate_k), ("--passage", asked.passage)):
            if value is not None:
                raise UsageError(f"{model.reference} has no gate: leave {option} out.")
        return asked
    first, *others = asked.gate_k or trained_numbers(model)
    numbers = (first, *sorted({*others} - {first}))
    for split in splits:
        require_neighbors(read["gate_neighbors"], split, max(numbers), "evaluate --gate-k ")
    return GateSettings(numbers, _passage(asked, splits[0], read["tokens"]))


def trained_numbers(model: Artifact) -> tuple[int]:
    """Neighbours that a model with a gate was trained with."""
    return (int(model.config["memory"]["k"]),)


def _passage(asked: GateSettings, split: str, tokens: Artifact) -> str:
    total = int(tokens.metrics["splits"][split]["tokens"])
    shown = range(PASSAGE_TOKENS) if asked.passage is None else asked.shown
    stop = min(shown.stop, total)
    if shown.start >= stop:
        raise UsageError(f"--passage {asked.passage} holds no token: {split} has {total:,} tokens.")
    if stop - shown.start > LONGEST_PASSAGE:
        raise UsageError(f"--passage {asked.passage} is longer than {LONGEST_PASSAGE} tokens, the most that are shown.")
    return f"{shown.start}:{stop}"
