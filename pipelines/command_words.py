"""The words of a command that makes an artifact, such that it can be typed again."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.catalogue import COMMANDS, config_of
from pipelines.options import options_of
from pipelines.settings import nested

Settings = Mapping[str, Any]


def command_words(
    command: str, references: Mapping[str, Any], settings: Settings, preset: str | None = None
) -> tuple[str, ...]:
    """A command: its arguments, other references and settings as options, the rest by `--set`.

    Args:
        command: its name.
        references: artifacts and files by role; `source` is the argument.
        settings: nested, those alone that were asked for.
        preset: named by `--model`; None: none was named.

    >>> command_words("build-datastore", {"source": "model/lm"}, {"split": "valid", "key": None})
    ('build-datastore', 'model/lm', '--split', 'valid')
    """
    first = COMMANDS[command].first
    arguments = [one for role in (first, "source") for one in _listed(references.get(role))]
    others = {role: value for role, value in references.items() if role not in (first, "source")}
    named = [word for role, value in others.items() for word in _named(role, value)]
    given = {name: value for name, value in settings.items() if name not in references and value != "auto"}
    options = [word for group in setting_words(command, given) for word in group]
    return (command, *arguments, *named, *(["--model", preset] if preset else []), *options)


def _named(role: str, value: Any) -> Iterator[str]:
    for one in _listed(value):
        yield from (f"--{role.replace('_', '-')}", one)


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else [str(one) for one in value]


def on_top_of_preset(config: Settings) -> dict[str, Any]:
    """Settings of a training that differ from those that `memlm train` has where no preset is named; nested."""
    from stages.training.config import TrainConfig
    from stages.training.presets import choose_preset

    backbone = config["model"]["backbone"]
    preset = TrainConfig.model_validate(choose_preset(None, backbone))
    if config["model"].get("vocab_size"):  # of a trained model: sizes that follow from the text are no settings
        model = preset.model.sized(config["model"]["vocab_size"], config["segment_length"])
        preset = preset.model_copy(update={"model": model})
    return nested({"model.backbone": backbone, **dict(differences(config, preset.stored()))})


def setting_words(command: str, settings: Settings) -> Iterator[list[str]]:
    """Nested settings as options of a command, else as --set; the words of each setting."""
    config = config_of(command)
    options = {option.setting: (option.flag, option.repeated) for option in options_of(config).values()}
    if "precision" in config.model_fields:
        options["precision"] = "--precision", False
    for path, value in differences(settings, {}):
        yield from _spelled(path, value, *options.get(path, (None, False)))


def differences(config: Settings, base: Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values that differ between `config` and `base`; None was not given."""
    for name, value in config.items():
        path, default = f"{above}{name}", base.get(name)
        if isinstance(value, Mapping):
            yield from differences(value, default if isinstance(default, Mapping) else {}, f"{path}.")
        elif value is not None and value != default:
            yield path, value


def _spelled(path: str, value: Any, option: str | None, repeated: bool) -> Iterator[list[str]]:
    value = list(value) if isinstance(value, tuple) else value
    if option is None or value is False:
        yield ["--set", f"{path}={json.dumps(value)}"]
    elif value is True:
        yield [option]
    elif isinstance(value, list) and repeated:
        yield from ([option, str(one)] for one in value or ("none",))
    else:
        yield [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
