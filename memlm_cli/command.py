"""Behaviour of all commands: late import, a sign of life, defaults from `memlm.toml`.

Stages also have the options under "Everywhere".
"""

import atexit
import gc
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer

from memlm_cli.console import say
from memlm_cli.defaults import FILE, Default
from memlm_cli.options import Asked, Common, OptionsOf, parameters_of
from memlm_cli.progress import telling
from stages.errors import UsageError
from stages.registry import load
from stages.reporting import first_process

ALTERNATIVES = (
    ("steps", "epochs"),
    ("memory", "report"),
    ("text", "position"),
    ("text", "split"),
    ("text", "length"),
)
"""Options with the same meaning: if one is typed, a default of the other is ignored."""
SETTING = re.compile(r"(?:^|(?<=; ))\w+(?=: | is )")
"""The name of a setting at the beginning of an error message."""
HOW = ("store", "workers", "executor", "json", "json_")
"""Parameters that no result depends on, so that no reminder names them."""

SHARED: Mapping[str, type] = {"common": Common, "asked": Asked}
"""Parameters that receive several options as one value, and the class of that value."""


class Commands(typer.Typer):
    """Commands that show that they are at work, and whose options may have defaults in
    `memlm.toml`.
    """

    def command(  # type: ignore[override]  # whatever else Typer's own takes
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        register = super().command(name, **settings)

        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_prepared(function))
            return function

        return registered


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
    groups = {name: _options_of(mark) for name, mark in marks.items()}
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
        if (
            context.obj.error is not None and context.info_name != "doctor"
        ):  # which examines memlm.toml
            raise context.obj.error
        entries = context.obj.of(words_of(context))
        typed = [
            name for name in values if _source(context, name) in ("COMMANDLINE", "ENVIRONMENT")
        ]
        defaults = in_force(entries, typed)
        # Click filled in the value of memlm.toml; where that gives way, the option's own default
        # holds.
        for name in {entry.parameter for entry in entries} - defaults.keys():
            if _source(context, name) == "DEFAULT_MAP":
                values[name] = next(p.default for p in parameters if p.name == name)
        with named_in_errors(defaults):
            for name, group in groups.items():
                values[name] = _grouped(marks[name], {p.name: values.pop(p.name) for p in group})
            given = {p.name: values.pop(p.name) for p in shared}
            if common == "common":
                if "set" in defaults:
                    given["default_set"] = tuple(defaults["set"].value)
                    given["set"] = (
                        given["set"] if _source(context, "set") == "COMMANDLINE" else None
                    )
                given["by_default"] = frozenset(defaults)
            if common:
                values[common] = SHARED[common](**given)
            if common == "common":
                remind(str(context.info_name), defaults)
            function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _options_of(group: OptionsOf) -> list[inspect.Parameter]:
    from memlm_cli.commands.stage import option_parameter
    from pipelines.options import options_of

    return [option_parameter(option) for option in options_of(load(group.target)).values()]


def _grouped(group: OptionsOf, given: Mapping[str, Any]) -> Any:
    """The settings of a group, from values of its options. Raises: UsageError for invalid values."""
    from pipelines.options import options_of
    from pipelines.settings import nested, validated

    options = options_of(load(group.target))
    typed = {name: value for name, value in given.items() if value is not None}
    values = nested(
        {options[name].setting: options[name].value(value) for name, value in typed.items()}
    )
    try:
        return validated(load(group.target), values)
    except UsageError as error:
        flags = {name: option.flag for name, option in options.items()}
        raise UsageError(
            SETTING.sub(lambda found: flags.get(found[0], found[0]), str(error))
        ) from None


def words_of(context: typer.Context) -> tuple[str, ...]:
    """The words of a command, as `("artifacts", "list")`."""
    return tuple(context.command_path.split()[1:])


def in_force(entries: Iterable[Default], typed: Collection[str]) -> dict[str, Default]:
    """The defaults of a command that hold when the parameters in `typed` are typed, by parameter.

    A default gives way to the same option if typed, and to one with the same meaning. A default of
    `--set` is added.
    """
    pairs = [pair for one, other in ALTERNATIVES for pair in ((one, other), (other, one))]
    replaced = {name for name, alternative in pairs if alternative in typed}
    kept = (entry for entry in entries if entry.parameter not in replaced)
    return {
        entry.parameter: entry
        for entry in kept
        if entry.parameter == "set" or entry.parameter not in typed
    }


def _source(context: typer.Context, parameter: str) -> str:
    """Origin of the value of a parameter: the name that Click gives to it."""
    return getattr(context.get_parameter_source(parameter), "name", "")


@contextmanager
def named_in_errors(defaults: Mapping[str, Default]) -> Iterator[None]:
    """Context in which messages about usage name the values that came from `memlm.toml`."""
    try:
        yield
    except UsageError as error:
        named = [d.shown for d in defaults.values() if d.parameter not in HOW]
        if named and type(error) is UsageError:
            raise UsageError(
                f"{str(error).rstrip('.')}. From {FILE}: {', '.join(named)}."
            ) from error
        raise


def remind(command: str, defaults: Mapping[str, Default]) -> None:
    """Name the defaults that a result depends on, since nobody typed them."""
    shown = [d.shown for d in defaults.values() if d.parameter not in HOW]
    if shown and first_process():
        say(f"{command}: from {FILE}: {' '.join(shown)}")
