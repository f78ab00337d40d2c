"""Parsing of `evaluate-tasks --memory READING[:key=value,…]`, by the rules of `evaluate --memory`.
Free of torch.
"""

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import NamedTuple

from pydantic import ValidationError

from stages.errors import UsageError, did_you_mean
from stages.registry import import_outside
from stages.retrieval.grammar import explained, key_values
from stages.tasks import READINGS
from stages.tasks.readings import Reading

TUNE = "tune"
MAX_CHOICES = 1000
"""Maximum number of readings to try for a row: each answers the whole tune split of the first task.
"""


class Choices(NamedTuple):
    """The readings from which a row is chosen; they differ only in numbers. Usually there is one."""

    spelled: str
    readings: tuple[Reading, ...]


def parse_choices(spec: str) -> Choices:
    """The row that a text describes.

    Raises: UsageError that names the text, what is wrong with it, and the legal values.

    >>> [reading.spelled for reading in parse_choices("mbpa:k=8,lr=0.005/0.02").readings]
    ['mbpa:k=8,lr=0.005', 'mbpa:k=8,lr=0.02']
    """
    name, _, tail = spec.partition(":")
    settings = reading_settings(name)
    keys = tuple(key for key in settings.names() if key != "name")
    if tail and not keys:
        raise UsageError(f"--memory {spec}: {name} has no keys, so nothing follows it.")
    values = {
        key: _listed(spec, settings, key, value) for key, value in key_values(spec, tail, keys)
    }
    if (count := prod(map(len, values.values()))) > MAX_CHOICES:
        raise UsageError(
            f"--memory: {name} stands for {count:,} readings; at most {MAX_CHOICES:,} are tried: name fewer."
        )
    combinations = (
        dict(zip(values, numbers, strict=True)) for numbers in product(*values.values())
    )
    readings = tuple(_checked(spec, settings, numbers) for numbers in combinations)
    if len(set(readings)) < len(readings):
        raise UsageError(f"--memory {spec}: a value is there twice.")
    return Choices(readings[0].spelled if len(readings) == 1 else spec, readings)


def parse_reading(spec: str) -> Reading:
    """The reading that a text without numbers left to choose describes. Raises: UsageError as
    `parse_choices`, and for several readings.

    >>> parse_reading("mbpa:k=8,lr=0.005").spelled
    'mbpa:k=8,lr=0.005'
    """
    readings = parse_choices(spec).readings
    if len(readings) > 1:
        raise UsageError(f"--memory {spec}: it stands for {len(readings)} readings; name one.")
    return readings[0]


def reading_settings(name: str) -> type[Reading]:
    """The settings of a reading. Raises: UsageError for an unknown name."""
    import_outside()
    if name not in READINGS:
        raise UsageError(
            f"--memory: there is no reading {name!r} of tasks; {did_you_mean(name, READINGS.names())}"
        )
    settings: type[Reading] = READINGS.settings(name)
    return settings


def grids() -> dict[str, tuple[float, ...]]:
    """Values that `tune` tries, by the key of a reading."""
    of_readings = (READINGS.settings(name).hyperparameters() for name in READINGS.names())
    return {key: mark.grid for marks in of_readings for key, mark in marks.items() if mark.grid}


def _listed(spec: str, settings: type[Reading], key: str, value: str) -> list[str]:
    """The values of a setting to try."""
    if value != TUNE:
        return value.split("/")
    marks = settings.hyperparameters()
    tunable = [name for name, mark in marks.items() if mark.grid]
    if key not in tunable:
        raise UsageError(
            f"--memory {spec}: {', '.join(tunable) or 'nothing'} can be tuned; of {key} name the "
            f"values, as {key}=8/32."
        )
    return [f"{number:g}" for number in marks[key].grid]


def _checked(spec: str, settings: type[Reading], numbers: Mapping[str, str]) -> Reading:
    """A reading with these numbers. Raises: UsageError for one that is not legal."""
    try:
        return settings.model_validate(numbers)
    except ValidationError as error:
        raise UsageError(f"--memory {spec}: {explained(error)}.") from None
