"""The twin of a model that was trained with memory: the same training without it, the fair baseline of its reports."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipelines.command_words import command_words, on_top_of_preset
from stages.artifacts.advice import store_words

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.reports.remarks.remark import Remark

WITHOUT: Mapping[str, Any] = {"method": "lm", "memory": None}


def twin_remarks(report: "Artifact") -> "list[Remark]":
    """The twin in the store, or the command that trains it; empty for a model that was trained without memory.

    A model that began with the weights of another has no twin of the same cost, so nothing is said of it.
    """
    from stages.reports.remarks.table import remark

    model = report.input("model")
    if model.config.get("method", "lm") in ("lm", "imported") or "init" in model.manifest.inputs:
        return []
    config = _without_memory(model.config)
    tokens = model.input("tokens")
    for other in report.store.artifacts("model"):
        if other.config == config and other.manifest.inputs["tokens"].reference == tokens.reference:
            return [remark("twin", {"model": model.reference, "twin": other.reference})]
    words = command_words("train", {"source": tokens.reference}, on_top_of_preset(config))
    command = shlex.join(["memlm", *words, *store_words(report.store.root)])
    return [remark("train-twin", {"command": command})]


def _without_memory(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the same training by method `lm`."""
    from stages.models.neighbor_settings import NEIGHBOR_SETTINGS

    plain = {name: None for name in NEIGHBOR_SETTINGS if name in config["model"]}
    return {**config, **WITHOUT, "model": {**config["model"], **plain}}
