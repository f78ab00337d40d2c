"""Settings of one command: defaults of memlm.toml, then its --config file, then --set, then its own options."""

from collections.abc import Mapping
from typing import Any

from memlm_cli.options import Common
from pipelines.settings import Settings, assignment, merged, nested
from stages.config import read_toml

PARAMETERS = {
    "model.backbone": "backbone",
    "model.memory_length": "mem_length",
    "optimizer.lr": "lr",
    "recall_queries": "recall",
}
"""Settings, and the parameters of commands that give them under another name."""


def given_settings(common: Common, options: Mapping[str, Any]) -> Settings:
    """All that a user said about a stage's configuration, as nested tables; what is not said has its default.

    What was typed wins over what memlm.toml says, whichever way it was typed.

    Args:
        common: has --config, --set and --precision.
        options: the command's own options by the (dotted) name of the setting; None: not given.
    """
    return merged(*_layers(common, options, by_default=True), *_layers(common, options, by_default=False))


def _layers(common: Common, options: Mapping[str, Any], *, by_default: bool) -> list[Settings]:
    """What memlm.toml gives, or all else."""

    def chosen(parameter: str) -> bool:
        return (parameter in common.by_default) == by_default

    file = read_toml(common.config) if common.config and chosen("config") else {}
    assigned = [assignment(text) for text in common.set or ()] if chosen("set") else []
    own = {name: value for name, value in options.items() if chosen(PARAMETERS.get(name, name))}
    return [file, *assigned, nested(own)]
