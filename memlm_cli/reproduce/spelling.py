"""Settings spelled as the options of a command."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipelines.catalogue import config_of
from pipelines.options import options_of

Settings = Mapping[str, Any]

NESTED = ("model.backbone", "model.mem_length", "model.attention.long_length", "optimizer.lr")
"""Settings in a group that an option gives: its name is their last part."""
REPEATED = {"memory", "forget"}
"""Options that are given once for each value."""


def setting_words(command: str, settings: Settings) -> Iterator[list[str]]:
    """Nested settings as options of a command, else as --set."""
    yield from all_spelled(command, differences(settings, {}))


def all_spelled(command: str, settings: Iterable[tuple[str, Any]]) -> Iterator[list[str]]:
    """Settings, by dotted names, as options of a command, else as --set."""
    options = _option_names(command)
    for path, value in settings:
        yield from _spelled(path, value, options)


def differences(config: Settings, base: Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of what `config` has otherwise than `base`; what is None was not given."""
    for name, value in config.items():
        path, default = f"{above}{name}", base.get(name)
        if isinstance(value, dict):
            yield from differences(value, default if isinstance(default, dict) else {}, f"{path}.")
        elif value is not None and value != default:
            yield path, value


def _option_names(command: str) -> dict[str, str]:
    """Setting -> option, for what the command has an option for."""
    config = config_of(command)
    options = {option.setting: option.flag for option in options_of(config).values()}
    if command == "train":
        options["model.attention.long_length"] = options["long_length"]
    return {**options, **({"precision": "--precision"} if "precision" in config.model_fields else {})}


def _spelled(path: str, value: Any, options: Mapping[str, str]) -> Iterator[list[str]]:
    option = options.get(path)
    if option is None:
        yield ["--set", f"{path}={json.dumps(value)}"]
    elif value is True:
        yield [option]
    elif isinstance(value, list) and path in REPEATED:
        yield from ([option, str(one)] for one in value or ("none",))
    else:
        yield [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
