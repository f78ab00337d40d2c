"""The commands that make artifacts: an argument, an option for each setting and each reference, one stage."""

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from pipelines.catalogue import COMMANDS, Command, Reference, config_of
from pipelines.options import Option, options_of
from stages.artifacts.kinds import KINDS
from stages.methods import METHODS
from stages.models import NAMED, trainable_backbones

COMPLETIONS = {
    "method": completion.words(METHODS.names),
    "backbone": completion.words(lambda: [*trainable_backbones(), *NAMED]),
    "tokenizer": completion.tokenizers,
    "memory": completion.words(completion.memories),
}
"""Words that a shell offers for an option, by its name."""


def stage_command(name: str) -> Callable[..., None]:
    """The function of a command, as Typer takes it."""
    command, config = COMMANDS[name], config_of(name)

    def run(*, common: Common, source: str | list[str] | None, **given: Any) -> None:
        from memlm_cli.run_stage import make_artifact  # which help does without

        make_artifact(name, source, given, common)

    options = options_of(config)
    named = {role: one for role, one in command.references.items() if role not in options and role != command.first}
    references = [_reference(role, one) for role, one in named.items()]
    settings = [*([_preset()] if config.has_presets else []), *map(option_parameter, options.values())]
    own = [*references, *settings] if command.reads_files else [*settings, *references]
    common = Parameter("common", Parameter.KEYWORD_ONLY, annotation=Common)
    run.__signature__ = Signature([*_arguments(command), *own, common])  # type: ignore[attr-defined]
    run.__doc__ = command.summary
    return run


def option_parameter(option: Option) -> Parameter:
    """An option that gives a setting, as a parameter of a function that Typer runs."""
    kind = (option.metavar or "").lower()
    offered = completion.artifacts(kind) if kind in KINDS else COMPLETIONS.get(option.name)
    declared = typer.Option(option.flag, metavar=option.metavar, help=option.help, autocompletion=offered)
    return _parameter(option.name, list[str] if option.repeated else option.type, declared)


def _arguments(command: Command) -> Iterator[Parameter]:
    if command.first:
        declared = typer.Argument(metavar=command.first.upper(), help=command.references[command.first].help)
        yield Parameter(command.first, Parameter.KEYWORD_ONLY, annotation=Annotated[str, declared])
    if command.reads_files:
        declared = typer.Argument(metavar="FILES...", help=command.source_help, show_default=False)
        yield _parameter("source", list[str], declared)
    else:
        help = f"{command.source_help}; - or none: from stdin."
        kinds = "|".join(command.source).upper()
        declared = typer.Argument(metavar=kinds, help=help, autocompletion=completion.artifacts(*command.source))
        yield _parameter("source", str, declared)


def _reference(role: str, reference: Reference) -> Parameter:
    declared = typer.Option(
        f"--{role.replace('_', '-')}",
        metavar=reference.metavar or "|".join(reference.kinds).upper(),
        help=reference.help,
        autocompletion=completion.artifacts(*reference.kinds) if reference.kinds else None,
    )
    return _parameter(role, list[str] if reference.several else str, declared)


def _preset() -> Parameter:
    from stages.training.presets import preset_names

    help = (
        "All settings at once, over which options win (default: tiny, tiny-BACKBONE, which learn a megabyte of text in "
        "minutes). In the same time tiny-transformer-xl --segment-length 32 --batch-tokens 512, as try trains, has a "
        f"perplexity 14 to 25 % lower. Presets, described by memlm presets: {', '.join(preset_names())}."
    )
    declared = typer.Option("--model", metavar="PRESET|FILE.toml", autocompletion=completion.presets, help=help)
    return _parameter("model", str, declared)


def _parameter(name: str, kind: Any, declared: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind | None, declared], default=None)
