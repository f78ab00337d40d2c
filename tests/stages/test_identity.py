"""One rule: an id covers the settings that are not at their default; a changed default raises the
format version.

`python -m tests.stages.test_identity` notes the defaults of today in `defaults.json`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.kinds import KINDS, STAGES
from stages.config import Settings, StageConfig
from stages.memory.readers import READERS
from stages.methods import METHODS
from stages.models import BACKBONES
from stages.models.layers import FEED_FORWARD, LOOKUP, STREAM_ATTENTION, WINDOW_ATTENTION
from stages.retrieval.registries import SOURCES
from stages.tasks import READINGS
from stages.tasks.grammar import TUNE, grids
from stages.training.presets import choose_preset, preset_names

NOTED = Path(__file__).parent / "defaults.json"
PARTS = (BACKBONES, METHODS, FEED_FORWARD, LOOKUP, STREAM_ATTENTION, WINDOW_ATTENTION)
"""Registries whose settings are below those of models."""


def settings_classes(kind: str) -> Iterator[type[Settings]]:
    yield from (stage.Config for stage in map(STAGES.load, STAGES.names()) if stage.kind == kind)
    if kind == "model":
        yield from (registry.settings(name) for registry in PARTS for name in registry.names())
    # A row says `mbpa` or `external` alone where all its numbers are the usual ones.
    if kind == "matrix":
        yield from (READINGS.settings(name) for name in READINGS.names())
    if kind == "report":
        yield from (
            registry.settings(name) for registry in (SOURCES, READERS) for name in registry.names()
        )


def defaults_of(kind: str) -> dict[str, Any]:
    """The defaults of all settings that ids of a kind may cover, nested ones under their class's
    name too.
    """
    found: dict[str, Any] = {}
    waiting = list(settings_classes(kind))
    while waiting:
        one = waiting.pop()
        if one.__module__.startswith("tests."):
            continue
        for name, field in one.model_fields.items():
            if field.is_required() or name in getattr(one, "not_identity", ()):
                continue
            value = field.get_default(call_default_factory=True)
            if isinstance(value, Settings):
                waiting.append(type(value))
                value = type(value).__name__
            found[f"{one.__name__}.{name}"] = value
    if kind == "matrix":
        found |= {f"{TUNE} {name}": values for name, values in grids().items()}
    return json.loads(json.dumps(dict(sorted(found.items()))))


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_default_raises_the_format_version(kind: str) -> None:
    noted = json.loads(NOTED.read_text())[kind]
    if noted["format_version"] == KINDS[kind].format_version:
        own = defaults_of(kind)
        changed = {
            name: own[name]
            for name, value in noted["defaults"].items()
            if own.get(name, value) != value
        }
        assert not changed, (
            f"raise the format version of {kind} in kinds.py, then python -m {__name__}"
        )


@pytest.mark.parametrize("stage", STAGES.names())
def test_defaults_are_no_part_of_an_id(stage: str) -> None:
    config = STAGES.load(stage).Config
    assert config().canonical() in ({}, {"method": "lm"})  # a constant at most


@pytest.mark.parametrize("preset", preset_names())
def test_settings_follow_from_what_the_id_covers(preset: str) -> None:
    config = STAGES.load("train").Config
    chosen: StageConfig = config.model_validate(choose_preset(preset, None))
    assert config.model_validate(chosen.canonical()) == config.model_validate(chosen.stored())


@pytest.mark.parametrize("backbone", BACKBONES.names())
def test_parts_at_their_defaults_are_told_apart(backbone: str) -> None:
    config = STAGES.load("train").Config
    chosen = config.model_validate({"model": {"backbone": backbone}})
    assert chosen.canonical() in ({}, {"model": {"backbone": backbone}})
    assert config.model_validate(chosen.canonical()) == chosen


if __name__ == "__main__":
    noted = {
        kind: {"format_version": known.format_version, "defaults": defaults_of(kind)}
        for kind, known in KINDS.items()
    }
    NOTED.write_text(json.dumps(noted, indent=1) + "\n")
