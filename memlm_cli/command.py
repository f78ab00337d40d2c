"""Behaviour of all commands: late import, a sign of life, groups of options as one value."""

import atexit
import gc
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

import typer

from memlm_cli.options import Common, OptionsOf, StoreOptions, parameters_of
from memlm_cli.progress import telling
from stages.registry import load

SHARED: Mapping[str, type] = {"common": Common, "store_options": StoreOptions}
"""Parameters that receive several options as one value, and the class of that value."""


class Commands(typer.Typer):
    """Commands that show that they are at work."""

    def command(  # type: ignore[override]  # whatever else Typer's own takes
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            help = settings.pop("help", None) or flowing(inspect.getdoc(function) or "")
            register = super(Commands, self).command(name, help=help, **settings)
            register(_prepared(function))
            return function

        return registered


def flowing(text: str) -> str:
    """A docstring with one line a paragraph, so that a terminal of any width can wrap it.

    Commands, and lines that are indented, stay as they are.

    >>> flowing("One\\ntwo.\\n\\nmemlm train |\\nmemlm evaluate")
    'One two.\\n\\nmemlm train |\\nmemlm evaluate'
    """
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        is_kept = any(line.startswith(("memlm ", " ", "\b")) for line in lines)
        paragraphs.append(paragraph if is_kept else " ".join(lines))
    return "\n\n".join(paragraphs)


def carried_out_by(target: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose work is the function `target`, `"module:function"`, of the same parameters.

    The decorated function is its interface: options and help. The work is imported when it runs.
    """

    def declared(interface: Callable[..., None]) -> Callable[..., None]:
        @wraps(interface)
        def run(*arguments: Any, **options: Any) -> None:
            load(target)(*arguments, **options)

        return run

    return declared


def _prepared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command as Typer runs it. It receives each group of options, such as "Everywhere", as one
    value.
    """
    own_parameters = inspect.signature(function).parameters
    targets = {}
    for name, parameter in own_parameters.items():
        for mark in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(mark, OptionsOf):
                targets[name] = mark.target
    groups = {name: _option_groups().group_parameters(target) for name, target in targets.items()}
    common = next((name for name in SHARED if name in own_parameters), "")
    shared = parameters_of(SHARED[common]) if common else []

    parameters = []
    for name, parameter in own_parameters.items():
        if name not in (common, "parsed"):
            parameters += groups.get(name, [parameter])
    parameters += shared
    parameters.append(
        inspect.Parameter("parsed", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    )

    @wraps(function)
    def run(*, parsed: typer.Context, **values: Any) -> None:
        if "parsed" in own_parameters:
            values["parsed"] = parsed
        with telling(" ".join(words_of(parsed))):
            carry_out(parsed, values)

    def carry_out(context: typer.Context, values: dict[str, Any]) -> None:
        # What a command left open is closed by one search for garbage, before `main` ends all
        # searches. Python would search several times, which takes a third of a second with torch.
        atexit.unregister(gc.collect)
        atexit.register(gc.collect)
        for name, group in groups.items():
            group_values = {parameter.name: values.pop(parameter.name) for parameter in group}
            values[name] = _option_groups().grouped(targets[name], group_values)
        if common:
            shared_values = {parameter.name: values.pop(parameter.name) for parameter in shared}
            values[common] = SHARED[common](**shared_values)
        function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _option_groups() -> ModuleType:
    """The module of options of settings, imported only for a command that has some."""
    return import_module("memlm_cli.setting_options")


def words_of(context: typer.Context) -> tuple[str, ...]:
    """The words of a command, as `("artifacts", "list")`."""
    return tuple(context.command_path.split()[1:])
