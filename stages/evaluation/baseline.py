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
    made = report.metrics
    theirs = report.input("model")
    outside = made.get("outside_repeated_paragraphs")
    return {
        "report": report.reference,
        "model": theirs.reference,
        "method": made["method"],
        "row": made["rows"][0],
        "differs": list(_differences(model, theirs)) if not model.matches(theirs.record) else [],
        "outside_repeated_paragraphs": outside and {**outside, "rows": outside["rows"][:1]},
    }


def _differences(own: Artifact, theirs: Artifact) -> Iterator[str]:
    """Phrases for the differences of two models, except in memory: `backbone transformer-xl, not
    transformer`.
    """
    kinds = [model_of(model).model_dump(mode="json") for model in (own, theirs)]
    if kinds[0]["backbone"] != kinds[1]["backbone"]:
        yield _phrase("backbone", kinds[0]["backbone"], kinds[1]["backbone"])
    else:
        names = sorted((kinds[0].keys() & kinds[1].keys()) - OWN_MEMORY)
        yield from (
            _phrase(name, kinds[0][name], kinds[1][name])
            for name in names
            if kinds[0][name] != kinds[1][name]
        )
    for name in SETTINGS:
        yield from _differing(name, own.config, theirs.config)
    for group in GROUPS:
        first, second = (model.config.get(group) or {} for model in (own, theirs))
        yield from (
            f"{group} {phrase}" for name in first for phrase in _differing(name, first, second)
        )
    for name in FIGURES:
        yield from _differing(name, own.metrics, theirs.metrics)


def _differing(name: str, own: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    first = own.get(name)
    second = theirs.get(name)
    if None not in (first, second) and first != second:
        yield _phrase(name, first, second)


def _phrase(name: str, own: Any, theirs: Any) -> str:
    shown = [f"{value:,}" if isinstance(value, int) else str(value) for value in (own, theirs)]
    return f"{name.replace('_', ' ')} {shown[0]}, not {shown[1]}"
