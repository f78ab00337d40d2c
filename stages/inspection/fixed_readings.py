"""Readings of memory whose numbers are selected: given, those of an evaluation, or defaults. Free of torch."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError, content_of
from stages.memory.readers import READERS
from stages.methods.defaults import default_memory, trained_temperature
from stages.retrieval.grammar import Comparison
from stages.retrieval.reading import Reading, parse_reading, parse_readings
from stages.retrieval.sources import SOURCES


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

    Raises: ArtifactError if another model was evaluated; UsageError if a weight is learned.
    """
    if not model.matches(report.manifest.inputs["model"]):
        raise ArtifactError(
            f"{report.reference} evaluated {report.input('model').reference}, not {model.reference}; "
            "name a report of that, or give numbers with --memory."
        )
    found = report.json("metrics.json")
    with content_of(report.file("metrics.json"), UsageError):
        memories = found["memories"]
        readings = tuple(map(_reading, memories))
        learned = [memory["learned"] for memory in memories if "learned" in memory]
    if learned:
        one_for_all = " ".join(f"--memory {reading.spelled}" for reading in readings)
        raise UsageError(
            f"{report.reference} reads every context with a {learned[0]} of its own, which evaluate alone does; with "
            f"one for all: {one_for_all}"
        )
    return readings


def _reading(memory: Mapping[str, Any]) -> Reading:
    parts = [Comparison, READERS.settings(memory["reader"]), *map(SOURCES.settings, memory["sources"])]
    reported_names = {key: key for part in parts for key in part.names()}
    for source in parts[2:]:
        reported_names |= source.reported_as
    settings = {"reader": memory["reader"]}
    settings |= {key: memory[name] for key, name in reported_names.items() if memory.get(name) is not None}
    return parse_reading("+".join(memory["sources"]) + ":" + ",".join(f"{key}={v}" for key, v in settings.items()))


def default_readings(read: Mapping[str, Artifact]) -> tuple[Reading, ...]:
    """Default readings of these artifacts, with fixed numbers where an evaluation would tune; temperatures of
    neighbours stay `tune`."""
    readings = parse_readings(default_memory(read))
    return tuple(_fixed(reading, number > 0, read["model"]) for number, reading in enumerate(readings))


def _fixed(reading: Reading, on_top: bool, model: Artifact) -> Reading:
    fixed: dict[str, Any] = {
        name: (number.untuned[-1 if on_top else 0],) for name, number in reading.tunable.items() if number.untuned
    }
    if reading.reader_settings.temperatures:
        fixed["temperature"] = (trained_temperature(model),)
    return reading.changed(fixed)
