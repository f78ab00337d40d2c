"""Options of settings, as parameters of functions that Typer runs; and groups of them as one value."""

import re
from collections.abc import Mapping
from inspect import Parameter
from typing import Annotated, Any

import typer

from memlm_cli import completion
from pipelines.options import Option, options_of
from pipelines.settings import nested
from stages.artifacts.kinds import KINDS
from stages.errors import UsageError
from stages.methods import METHODS
from stages.models import NAMED, trainable_backbones
from stages.registry import load
from stages.validation import validated

SETTING = re.compile(r"(?:^|(?<=; ))\w+(?=: | is )")
"""The name of a setting at the beginning of an error message."""
COMPLETIONS = {
    "method": completion.words(METHODS.names),
    "backbone": completion.words(lambda: [*trainable_backbones(), *NAMED]),
    "tokenizer": completion.tokenizers,
    "memory": completion.words(completion.memories),
}
"""Completions of options by name."""


def option_parameter(option: Option) -> Parameter:
    """An option that gives a setting, as a parameter of a function that Typer runs."""
    kind = (option.metavar or "").lower()
    offered = (
        completion.artifacts(kind) if kind in KINDS.imported() else COMPLETIONS.get(option.name)
    )
    # Scripts may type a switch from the time when it was off; help need not show it.
    declared = typer.Option(
        option.flag,
        metavar=option.metavar,
        help=option.help,
        autocompletion=offered,
        hidden=option.is_default,
    )
    return parameter(option.name, list[str] if option.repeated else option.type, declared)


def parameter(name: str, kind: Any, declared: Any) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind | None, declared], default=None
    )


def group_parameters(target: str) -> list[Parameter]:
    """The options of a settings class, `"module:Class"`, as parameters."""
    return [option_parameter(option) for option in options_of(load(target)).values()]


def grouped(target: str, typed: Mapping[str, Any]) -> Any:
    """The settings of a class from values of its options. Raises: UsageError for invalid values."""
    options = options_of(load(target))
    settings = {}
    for name, value in typed.items():
        if value is not None:
            option = options[name]
            settings[option.setting] = option.value(value)
    try:
        return validated(load(target), nested(settings))
    except UsageError as error:
        # messages name settings; who types knows options
        flags = {name: option.flag for name, option in options.items()}
        message = SETTING.sub(lambda match: flags.get(match[0], match[0]), str(error))
        raise UsageError(message) from None
