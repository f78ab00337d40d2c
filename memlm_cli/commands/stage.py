"""The commands that make artifacts: an argument, and options for settings and references, to one
run of a stage.
"""

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.setting_options import option_parameter, parameter
from pipelines.catalogue import config_of
from pipelines.options import options_of
from stages.artifacts.declaration import Command, Reference
from stages.artifacts.kinds import COMMANDS
from stages.registry import load


def stage_command(name: str) -> Callable[..., None]:
    """The function of a command, as Typer takes it."""
    command = COMMANDS[name]
    config = config_of(name)

    def run(
        *,
        common: Common,
        source: str | list[str] | None,
        receipt: Path | None = None,
        **values: Any,
    ) -> None:
        load("memlm_cli.work.stage:make_artifact")(name, source, values, common, receipt)

    options = options_of(config)
    named = {
        role: option
        for role, option in command.references.items()
        if role not in options and role != command.first
    }
    references = [_reference(role, option) for role, option in named.items()]
    settings = [
        *([_preset()] if config.has_presets else []),
        *map(option_parameter, options.values()),
    ]
    parameters = [*references, *settings] if command.reads_files else [*settings, *references]
    if command.forgets:
        parameters.append(_receipt())
    common = Parameter("common", Parameter.KEYWORD_ONLY, annotation=Common)
    run.__signature__ = Signature([*_arguments(command), *parameters, common])  # type: ignore[attr-defined]
    run.__doc__ = command.summary
    return run


def _arguments(command: Command) -> Iterator[Parameter]:
    if command.first:
        declared = typer.Argument(
            metavar=command.first.upper(), help=command.references[command.first].help
        )
        yield Parameter(command.first, Parameter.KEYWORD_ONLY, annotation=Annotated[str, declared])
    if command.reads_files:
        declared = typer.Argument(metavar="FILES", help=command.source_help, show_default=False)
        yield parameter("source", list[str], declared)
    else:
        help = f"{command.source_help}; - or left out: read from stdin."
        kinds = "|".join(command.source).upper()
        declared = typer.Argument(
            metavar=kinds, help=help, autocompletion=completion.artifacts(*command.source)
        )
        yield parameter("source", str, declared)


def _reference(role: str, reference: Reference) -> Parameter:
    declared = typer.Option(
        f"--{role.replace('_', '-')}",
        metavar=reference.metavar or "|".join(reference.kinds).upper(),
        help=reference.help,
        autocompletion=completion.artifacts(*reference.kinds) if reference.kinds else None,
    )
    return parameter(role, list[str] if reference.several else str, declared)


def _receipt() -> Parameter:
    help = (
        "Write what held the forgotten documents, what was replaced, and what still holds them; "
        "without a word of their text."
    )
    declared = typer.Option("--receipt", metavar="FILE", help=help)
    return parameter("receipt", Path, declared)


def _preset() -> Parameter:
    from stages.training.presets import preset_names

    help = (
        "Preset or settings file; other options override it (default: tiny or tiny-BACKBONE, which learn a megabyte of "
        "text in minutes). In the same time tiny-transformer-xl --segment-length 32 --batch-tokens 512, as in memlm "
        "try, reaches a perplexity 14 to 25 % lower. Presets, which memlm presets describes: "
        f"{', '.join(preset_names())}."
    )
    declared = typer.Option(
        "--model", metavar="PRESET|FILE.toml", autocompletion=completion.presets, help=help
    )
    return parameter("model", str, declared)
