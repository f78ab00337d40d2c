"""Whether a training run went on long enough: how often it read its text, and whether validation still fell."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

NOTABLE = 0.01
"""Nats a token, one percent of perplexity: less is no change."""
LATE = 0.8
"""The end of a run is what comes after this share of its steps."""


class Validation(NamedTuple):
    """The loss on the validation split, nats a token, after a step."""

    step: int
    loss: float


def read_validations(lines: Path) -> list[Validation]:
    """All validations of a journal (`training.jsonl`), in order."""
    records = (json.loads(line) for line in lines.read_text("utf-8").splitlines())
    return [Validation(line["step"], line["valid_loss"]) for line in records if line.get("valid_loss") is not None]


def convergence(passes: float, validations: Sequence[Validation]) -> dict[str, Any]:
    """Metrics of a model that describe convergence.

    `passes` over the training split; `last_validations`: the last one, before it the last one from before the end of
    the run; `still_falling`: whether the loss was lowest after that one, notably below it, and stayed there, None where
    there are not both. Of a model that overfits, it falls at the end from far above what it was before.
    """
    last = validations[-1:]
    before = [one for one in validations[:-1] if one.step <= LATE * last[0].step]
    compared = [*(before or validations[:-1])[-1:], *last]
    return {
        "passes": round(passes, 4),
        "last_validations": [one._asdict() for one in compared],
        "still_falling": _fell_late(validations, compared[0]) if len(compared) == 2 else None,
    }


def _fell_late(validations: Sequence[Validation], before: Validation) -> bool:
    last, lowest = validations[-1], min(validations, key=lambda one: one.loss)
    late = lowest.step > before.step and before.loss - lowest.loss > NOTABLE
    return late and last.loss - lowest.loss <= NOTABLE
