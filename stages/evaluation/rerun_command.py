"""The command that evaluates the same with another `--memory`."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.advice import advised
from stages.artifacts.artifact import Artifact
from stages.diagnostics.options import option_names, resolve_options
from stages.encoding.window_settings import WindowedConfig, resolve_windows
from stages.errors import ArtifactError, UsageError
from stages.evaluation.config import EvaluateConfig
from stages.lineage.evaluation import MODELS_OWN

ASKED = ("split", "score", "reset", "frequency", "exclude", "save_token_scores")
"""Settings that are part of the command where they are not the default."""


def evaluate_command(config: EvaluateConfig, read: Mapping[str, Artifact]) -> str:
    """The command of an evaluation, without `--memory`.

    Args:
        config: resolved settings.
        read: artifacts by role.
    """
    model = read["model"]
    options = {**_named(read), **_settings(config, read)}
    words = [word for name, value in options.items() for word in _typed(name, value)]
    return advised(model.store.root, "evaluate", model.reference, *words)


def _named(read: Mapping[str, Artifact]) -> dict[str, str]:
    """The artifacts that a command would not find by itself."""
    model, tokens = read["model"], read["tokens"]
    memory = next((role for role in ("neighbors", "index") if role in read), None)
    named = {} if memory is None else {memory: read[memory].reference}
    if MODELS_OWN in read and memory != "neighbors":
        named["neighbors"] = read[MODELS_OWN].reference
    if model.input("tokens").reference != tokens.reference:
        named["tokens"] = tokens.reference
    return named | ({"baseline": read["baseline"].reference} if "baseline" in read else {})


def _settings(config: EvaluateConfig, read: Mapping[str, Artifact]) -> dict[str, Any]:
    """The settings that are not what they would be by themselves."""
    usual = {name: EvaluateConfig.model_fields[name].default for name in ASKED}
    usual |= resolve_windows(read["model"], dict.fromkeys(WindowedConfig.model_fields))._asdict()
    splits = tuple(split for split in (config.split, config.tune_split) if split is not None)
    try:
        usual |= resolve_options(dict.fromkeys(option_names()), read, splits)
    except (UsageError, ArtifactError):  # what they would be by themselves cannot be read here
        usual |= dict.fromkeys(option_names())
    usual |= {"tune_split": "valid" if config.tune_split is not None else None}
    return {name: getattr(config, name) for name, value in usual.items() if getattr(config, name) != value}


def _typed(name: str, value: Any) -> list[str]:
    """An option as it is typed."""
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [option, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
