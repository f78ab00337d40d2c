"""The commands that make artifacts: an argument, and options for settings and references, to one
run of a stage.

Imports inside functions keep help fast, which needs only the options.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from pipelines.catalogue import config_of, stage_of
from pipelines.options import Option, options_of
from stages.artifacts.declaration import Command, Reference
from stages.artifacts.kinds import COMMANDS, KINDS
from stages.errors import UsageError, nearest
from stages.methods import METHODS
from stages.models import NAMED, trainable_backbones

if TYPE_CHECKING:
    from pipelines.settings import Settings
    from stages.artifacts.make import Outcome
    from stages.config import StageConfig

COMPLETIONS = {
    "method": completion.words(METHODS.names),
    "backbone": completion.words(lambda: [*trainable_backbones(), *NAMED]),
    "tokenizer": completion.tokenizers,
    "memory": completion.words(completion.memories),
}
"""Completions of options by name."""


def stage_command(name: str) -> Callable[..., None]:
    """The function of a command, as Typer takes it."""
    command, config = COMMANDS[name], config_of(name)

    def run(
        *,
        common: Common,
        source: str | list[str] | None,
        receipt: Path | None = None,
        **given: Any,
    ) -> None:
        make_artifact(name, source, given, common, receipt)

    options = options_of(config)
    named = {
        role: one
        for role, one in command.references.items()
        if role not in options and role != command.first
    }
    references = [_reference(role, one) for role, one in named.items()]
    settings = [
        *([_preset()] if config.has_presets else []),
        *map(option_parameter, options.values()),
    ]
    own = [*references, *settings] if command.reads_files else [*settings, *references]
    if command.forgets:
        own.append(_receipt())
    common = Parameter("common", Parameter.KEYWORD_ONLY, annotation=Common)
    run.__signature__ = Signature([*_arguments(command), *own, common])  # type: ignore[attr-defined]
    run.__doc__ = command.summary
    return run


class Work(NamedTuple):
    """A stage to run: the settings and inputs of its command."""

    config: "StageConfig"
    references: dict[str, Any]
    """Artifacts and files by the stage's names for them."""
    asked: "Settings"
    """The requested settings, without those of a preset."""
    preset: str | None


def make_artifact(
    command: str,
    source: Any,
    given: Mapping[str, Any],
    common: Common,
    receipt: Path | None = None,
) -> None:
    """Make or find the artifact of a command; print its reference, and its content as a table.

    Under `memlm plan`, print only the plan.

    Args:
        command: its name.
        source: its argument, a list of files where it reads them; None or `-` reads a reference
        from standard input.
        given: values of the command's own options by name; None: not given.
        common: the options under "Everywhere".
        receipt: file for the receipt of what was forgotten; None: none is written.
    Raises: UsageError before anything is read or started; whatever the stage raises.
    """
    from memlm_cli.arguments import read_reference, reference_line, tell_outcome
    from memlm_cli.commands.receipts import require_receipt, write_receipt
    from memlm_cli.console import answer

    work = prepare(command, given, common)
    if receipt is not None:
        require_receipt(receipt, work.config)
    work.references["source"] = (
        (source or []) if COMMANDS[command].reads_files else read_reference(source)
    )
    if common.plan:
        from memlm_cli.commands.plan import show_estimates
        from pipelines.estimates import Task

        return show_estimates([Task(command, command, work.config, work.references)], common)
    outcome = run_stage(command, work, common)
    if receipt is not None:
        write_receipt(receipt, outcome.artifact, common.open_store())
    answer(reference_line(outcome.artifact, outcome.status, common))
    tell_outcome(command, outcome, common)


def prepare(command: str, given: Mapping[str, Any], common: Common) -> Work:
    """The settings of a command, validated, and the artifacts and files that its options name.

    Args:
        given: values of options by name; other names are settings, and may be nested.
    Raises: UsageError for invalid settings, before anything is read.
    """
    from memlm_cli.arguments import given_settings
    from pipelines.settings import merged
    from stages.validation import validated

    model, options = config_of(command), options_of(config_of(command))
    references = {role: given.get(role) for role in COMMANDS[command].references}
    preset = (
        given.get("model") if model.has_presets and isinstance(given.get("model"), str) else None
    )
    typed = {
        name: value for name, value in given.items() if value is not None and value is not preset
    }
    typed = {
        name: options[name].value(value) if name in options else value
        for name, value in typed.items()
        if name in options or name not in references
    }
    # A named one is read as a file or an artifact: its bytes are part of the id, its name is not.
    if (tokenizer := typed.get("tokenizer")) is not None:
        from stages.pretrained.location import names_tokenizer
        from stages.text.config import GIVEN

        _require_kind_or_place(tokenizer, common)
        references["tokenizer"] = tokenizer if names_tokenizer(tokenizer) else None
        typed["tokenizer"] = GIVEN if names_tokenizer(tokenizer) else tokenizer
    if "precision" in model.model_fields:
        typed["precision"] = common.precision
    asked = given_settings(common, typed, options)
    under: Settings = {}
    if model.has_presets:
        from stages.artifacts.store import Store
        from stages.training.presets import training_preset  # with the settings of all backbones

        init = references["init_from"]
        begins = None if init is None else Store(common.store).get(init, "model").config["model"]
        under = training_preset(preset, asked, begins)
    config: StageConfig = validated(model, merged(under, asked))
    return Work(
        config,
        {role: value for role, value in references.items() if value not in (None, [])},
        asked,
        preset,
    )


def _require_kind_or_place(tokenizer: str, common: Common) -> None:
    """Raises: UsageError for an unknown kind of tokenizer that resembles the name of tokens in the
    store.
    """
    from stages.artifacts.store import Store
    from stages.pretrained.location import names_tokenizer
    from stages.text import TOKENIZERS

    if names_tokenizer(tokenizer) or nearest(tokenizer, TOKENIZERS.names()) is not None:
        return  # the settings refuse misspelled kinds
    if (near := nearest(tokenizer, Store(common.store).names("tokens"))) is not None:
        raise UsageError(f"There is no tokenizer {tokenizer!r}; did you mean tokens/{near}?")


def run_stage(command: str, work: Work, common: Common) -> "Outcome":
    """Make or find the artifact of a stage, and give it the requested name."""
    from memlm_cli.arguments import publish_name
    from memlm_cli.exit_codes import resumable
    from memlm_cli.progress import ConsoleReporter
    from pipelines.options import command_words
    from stages.artifacts.make import make

    store = common.open_store()
    words = command_words(command, work.references, work.asked, work.preset)
    with resumable(), ConsoleReporter(command) as reporter:
        how = replace(common.execution(reporter), command=words)
        outcome = make(stage_of(command), work.config, work.references, store, how)
    publish_name(common, outcome.artifact)
    return outcome


# Options


def option_parameter(option: Option) -> Parameter:
    """An option that gives a setting, as a parameter of a function that Typer runs."""
    kind = (option.metavar or "").lower()
    offered = (
        completion.artifacts(kind) if kind in KINDS.imported() else COMPLETIONS.get(option.name)
    )
    declared = typer.Option(
        option.flag, metavar=option.metavar, help=option.help, autocompletion=offered
    )
    return _parameter(option.name, list[str] if option.repeated else option.type, declared)


def _arguments(command: Command) -> Iterator[Parameter]:
    if command.first:
        declared = typer.Argument(
            metavar=command.first.upper(), help=command.references[command.first].help
        )
        yield Parameter(command.first, Parameter.KEYWORD_ONLY, annotation=Annotated[str, declared])
    if command.reads_files:
        declared = typer.Argument(metavar="FILES...", help=command.source_help, show_default=False)
        yield _parameter("source", list[str], declared)
    else:
        help = f"{command.source_help}; - or left out: read from stdin."
        kinds = "|".join(command.source).upper()
        declared = typer.Argument(
            metavar=kinds, help=help, autocompletion=completion.artifacts(*command.source)
        )
        yield _parameter("source", str, declared)


def _reference(role: str, reference: Reference) -> Parameter:
    declared = typer.Option(
        f"--{role.replace('_', '-')}",
        metavar=reference.metavar or "|".join(reference.kinds).upper(),
        help=reference.help,
        autocompletion=completion.artifacts(*reference.kinds) if reference.kinds else None,
    )
    return _parameter(role, list[str] if reference.several else str, declared)


def _receipt() -> Parameter:
    help = (
        "Write what held the forgotten documents, what was replaced, and what still holds them; "
        "without a word of their text."
    )
    declared = typer.Option("--receipt", metavar="FILE", help=help)
    return _parameter("receipt", Path, declared)


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
    return _parameter("model", str, declared)


def _parameter(name: str, kind: Any, declared: Any) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind | None, declared], default=None
    )
