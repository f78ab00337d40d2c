"""The row of a baseline report, and how its training differs from that of the evaluated model."""

from collections.abc import Iterator, Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.models.config import NEIGHBOR_SETTINGS, model_of

SETTINGS = ("segment_length", "batch_tokens", "accumulate", "label_smoothing", "clip_norm", "lora")
"""Settings of training, besides the sizes of the model, that change the perplexity of a model
alone.
"""
GROUPS = ("optimizer", "schedule")
"""Groups of settings that change it, too."""
FIGURES = ("parameters", "steps", "tokens")
OWN_MEMORY = frozenset((*NEIGHBOR_SETTINGS, "attention", "segment_length"))
"""Settings of a model that belong to its memory, or follow from training."""


def baseline_row(report: Artifact, model: Artifact) -> dict[str, Any]:
    """The first row of another report, shown above the rows of `model`, and how its model differs;
    JSON.
    """
    metrics = report.metrics
    theirs = report.input("model")
    outside = metrics.get("outside_repeated_paragraphs")
    return {
        "report": report.reference,
        "model": theirs.reference,
        "method": metrics["method"],
        "row": metrics["rows"][0],
        "differs": list(_differences(model, theirs)) if not model.matches(theirs.record) else [],
        "outside_repeated_paragraphs": outside and {**outside, "rows": outside["rows"][:1]},
    }


def _differences(model: Artifact, other: Artifact) -> Iterator[str]:
    """Phrases for the differences of two models, except in memory: `backbone transformer-xl, not
    transformer`.
    """
    settings = model_of(model).model_dump(mode="json")
    others = model_of(other).model_dump(mode="json")
    if settings["backbone"] != others["backbone"]:
        yield _phrase("backbone", settings["backbone"], others["backbone"])
    else:
        for name in sorted((settings.keys() & others.keys()) - OWN_MEMORY):
            if settings[name] != others[name]:
                yield _phrase(name, settings[name], others[name])

    for name in SETTINGS:
        yield from _differing(name, model.config, other.config)
    for group in GROUPS:
        group_settings = model.config.get(group) or {}
        other_settings = other.config.get(group) or {}
        for name in group_settings:
            for phrase in _differing(name, group_settings, other_settings):
                yield f"{group} {phrase}"
    for name in FIGURES:
        yield from _differing(name, model.metrics, other.metrics)


def _differing(
    name: str, settings: Mapping[str, Any], other_settings: Mapping[str, Any]
) -> Iterator[str]:
    first = settings.get(name)
    second = other_settings.get(name)
    if None not in (first, second) and first != second:
        yield _phrase(name, first, second)


def _phrase(name: str, value: Any, other: Any) -> str:
    texts = [f"{number:,}" if isinstance(number, int) else str(number) for number in (value, other)]
    return f"{name.replace('_', ' ')} {texts[0]}, not {texts[1]}"
