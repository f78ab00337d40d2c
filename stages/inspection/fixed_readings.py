"""Readings of memory whose numbers are selected: given, those of an evaluation, or defaults. Free of torch."""

import json
from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.methods.defaults import default_memory, trained_temperature
from stages.retrieval.reading import Reading, parse_reading, parse_readings

WEIGHT, WEIGHT_ON_TOP = 0.25, 0.1
"""λ of a first reading and of one on top of others, where nobody says: near what WikiText-2 is tuned to."""
SIZE = 2048
"""Positions back of `long`."""

TOLD = ("similarity", "key", "scope", "size", "k", "temperature", "theta", "lambda", "alpha")
"""Names that reports and `--memory` share."""


def given_readings(specs: tuple[str, ...]) -> tuple[Reading, ...]:
    """The readings of `--memory` options.

    Raises: UsageError for numbers that are still to be chosen.
    """
    readings = parse_readings(specs)
    for reading in readings:
        if reading.choices:
            raise UsageError(
                f"--memory {reading.spelled}: one number is needed for {', '.join(reading.choices)}, nothing is tuned "
                "here; give numbers, or name with --report an evaluation whose numbers are to be taken."
            )
    return readings


def reported_readings(report: Artifact, model: Artifact) -> tuple[Reading, ...]:
    """The readings of a report's main row, with the numbers that its evaluation selected on.

    Raises: ArtifactError if another model was evaluated.
    """
    if report.manifest.inputs["model"] != model.record:
        raise ArtifactError(
            f"{report.reference} evaluated {report.input('model').reference}, not {model.reference}; "
            "name a report of that, or give numbers with --memory."
        )
    found = json.loads(report.file("metrics.json").read_text("utf-8"))
    return tuple(map(_reading, found["memories"]))


def _reading(memory: Mapping[str, Any]) -> Reading:
    settings = {name: memory[name] for name in TOLD if memory.get(name) is not None}
    settings |= {"reader": memory["reader"]} | ({"exact": "true"} if memory.get("exact_distances") else {})
    return parse_reading("+".join(memory["sources"]) + ":" + ",".join(f"{key}={v}" for key, v in settings.items()))


def default_readings(read: Mapping[str, Artifact]) -> tuple[Reading, ...]:
    """What an evaluation of these artifacts would tune, at fixed numbers; temperatures of neighbours stay `tune`."""
    readings = parse_readings(default_memory(read))
    return tuple(_fixed(reading, number > 0, read["model"]) for number, reading in enumerate(readings))


def _fixed(reading: Reading, on_top: bool, model: Artifact) -> Reading:
    joint = reading.reader == "joint"
    changes: dict[str, Any] = {
        "weight": None if joint else (WEIGHT_ON_TOP if on_top else WEIGHT,),
        "size": (SIZE,) if "long" in reading.sources else None,
    }
    if joint:
        changes |= {"alpha": (0.0,), "temperature": (trained_temperature(model),)}
    return reading.model_copy(update=changes)
