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

from memlm_cli.options import Asked, Common, OptionsOf, parameters_of
from memlm_cli.progress import telling
from stages.registry import load

SHARED: Mapping[str, type] = {"common": Common, "asked": Asked}
"""Parameters that receive several options as one value, and the class of that value."""


class Commands(typer.Typer):
    """Commands that show that they are at work."""

    def command(  # type: ignore[override]  # whatever else Typer's own takes
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        register = super().command(name, **settings)

        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_prepared(function))
            return function

        return registered


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
    own = inspect.signature(function).parameters
    marks = {
        name: mark
        for name, p in own.items()
        for mark in getattr(p.annotation, "__metadata__", ())
        if isinstance(mark, OptionsOf)
    }
    groups = {name: _option_groups().group_parameters(mark.target) for name, mark in marks.items()}
    common = next((name for name in SHARED if name in own), "")
    shared = parameters_of(SHARED[common]) if common else []
    parsed = inspect.Parameter("parsed", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    written = [
        one
        for p in own.values()
        if p.name not in (common, "parsed")
        for one in groups.get(p.name, [p])
    ]
    parameters = [*written, *shared, parsed]

    @wraps(function)
    def run(*, parsed: typer.Context, **values: Any) -> None:
        with telling(" ".join(words_of(parsed))):
            carry_out(parsed, values | ({"parsed": parsed} if "parsed" in own else {}))

    def carry_out(context: typer.Context, values: dict[str, Any]) -> None:
        # What a command left open is closed by one search for garbage, before `main` ends all
        # searches. Python would search several times, which takes a third of a second with torch.
        atexit.unregister(gc.collect)
        atexit.register(gc.collect)
        for name, group in groups.items():
            given = {p.name: values.pop(p.name) for p in group}
            values[name] = _option_groups().grouped(marks[name].target, given)
        if common:
            given = {p.name: values.pop(p.name) for p in shared}
            values[common] = SHARED[common](**given)
        function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _option_groups() -> ModuleType:
    """The module of options of settings, imported only for a command that has some."""
    return import_module("memlm_cli.setting_options")


def words_of(context: typer.Context) -> tuple[str, ...]:
    """The words of a command, as `("artifacts", "list")`."""
    return tuple(context.command_path.split()[1:])
