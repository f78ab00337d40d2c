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
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from memlm_cli.console import say
from memlm_cli.defaults import FILE, Default
from memlm_cli.options import Asked, Common, OptionsOf, parameters_of
from memlm_cli.progress import telling
from stages.errors import UsageError
from stages.registry import load
from stages.reporting import first_process

ALTERNATIVES = (("steps", "epochs"), ("memory", "report"), ("text", "position"), ("text", "split"), ("text", "length"))
"""Options with the same meaning: if one is typed, a default of the other is ignored."""
SETTING = re.compile(r"(?:^|(?<=; ))\w+(?=: | is )")
"""The name of a setting at the beginning of an error message."""
HOW = ("store", "workers", "executor", "json", "json_")
"""Parameters that no result depends on, so that no reminder names them."""

SHARED: Mapping[str, type] = {"common": Common, "asked": Asked}
"""Parameters that receive several options as one value, and the class of that value."""


class Commands(typer.Typer):
    """Commands that show that they are at work, and whose options may have defaults in `memlm.toml`."""

    def command(  # type: ignore[override]  # whatever else Typer's own takes
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        register = super().command(name, **settings)

        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_prepared(function))
            return function

        return registered


class CommandsByName(TyperGroup):
    """A group that imports and builds a command when it is asked for, since one process needs only one."""

    names: ClassVar[tuple[str, ...]]
    """Names in the order of help."""
    package: ClassVar[str]
    """Package with a module for each command; the module holds a function of that name, or a group as `app`."""
    modules: ClassVar[Mapping[str, str]] = {}
    """Modules of commands that are not named after them; `module:name` if a module holds several."""
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Further arguments for Typer when it registers a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.lists = False
        """Whether commands are asked for their summaries alone."""
        self.commands = _Built(self)  # type: ignore[assignment]  # which is a dict in Click, and only read

    def list_commands(self, ctx: Any) -> list[str]:
        self.lists = True  # the help of the group, or a shell, then asks for each
        return list(self.names)

    def build(self, name: str) -> Any:
        found = self.function(name)
        alone = Commands(rich_markup_mode=self.rich_markup_mode)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name, **self.settings.get(name, {}))(found)
        return typer.main.get_group(alone).commands[name]

    def function(self, name: str) -> Any:
        """The function of a command, or the group that it is."""
        module, _, function = self.modules.get(name, name.replace("-", "_")).partition(":")
        holds = import_module(f"{self.package}.{module}")
        return getattr(holds, "app", None) or getattr(holds, function or module)


class _Built(Mapping[str, Any]):
    """Commands by name, each built once."""

    def __init__(self, group: CommandsByName) -> None:
        self._group, self._built = group, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._group.names:
            raise KeyError(name)
        # Not kept: a command built for a list has a summary, but no options.
        if self._group.lists:
            return self._group.build(name)
        if name not in self._built:
            self._built[name] = self._group.build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.names)

    def __len__(self) -> int:
        return len(self._group.names)


def _prepared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command as Typer runs it. It receives each group of options, such as "Everywhere", as one value."""
    own = inspect.signature(function).parameters
    marks = {name: mark for name, p in own.items() if (mark := _group_of(p.annotation)) is not None}
    groups = {name: _options_of(mark) for name, mark in marks.items()}
    common = next((name for name in SHARED if name in own), "")
    shared = parameters_of(SHARED[common]) if common else []
    parsed = inspect.Parameter("parsed", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    written = [one for p in own.values() if p.name not in (common, "parsed") for one in groups.get(p.name, [p])]
    parameters = [*written, *shared, parsed]

    @wraps(function)
    def run(*, parsed: typer.Context, **values: Any) -> None:
        with telling(" ".join(words_of(parsed))):
            carry_out(parsed, values | ({"parsed": parsed} if "parsed" in own else {}))

    def carry_out(context: typer.Context, values: dict[str, Any]) -> None:
        atexit.unregister(gc.freeze)  # the last garbage collection may close what a command left open
        if context.obj.error is not None and context.info_name != "doctor":  # which examines memlm.toml
            raise context.obj.error
        entries = context.obj.of(words_of(context))
        typed = [name for name in values if _source(context, name) in ("COMMANDLINE", "ENVIRONMENT")]
        defaults = in_force(entries, typed)
        # Click filled in the value of memlm.toml; where that gives way, the option's own default holds.
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
                    given["set"] = given["set"] if _source(context, "set") == "COMMANDLINE" else None
                given["by_default"] = frozenset(defaults)
            if common:
                values[common] = SHARED[common](**given)
            if common == "common":
                remind(str(context.info_name), defaults)
            function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _group_of(annotation: Any) -> OptionsOf | None:
    return next((mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, OptionsOf)), None)


def _options_of(group: OptionsOf) -> list[inspect.Parameter]:
    """The options that give a group of settings."""
    from memlm_cli.commands.stage import option_parameter
    from pipelines.options import options_of

    return [option_parameter(option) for option in options_of(load(group.target)).values()]


def _grouped(group: OptionsOf, given: Mapping[str, Any]) -> Any:
    """The settings of a group, from values of its options. Raises: UsageError for invalid values."""
    from pipelines.options import options_of
    from pipelines.settings import nested, validated

    options = options_of(load(group.target))
    typed = {name: value for name, value in given.items() if value is not None}
    values = nested({options[name].setting: options[name].value(value) for name, value in typed.items()})
    try:
        return validated(load(group.target), values)
    except UsageError as error:
        flags = {name: option.flag for name, option in options.items()}
        raise UsageError(SETTING.sub(lambda found: flags.get(found[0], found[0]), str(error))) from None


def words_of(context: typer.Context) -> tuple[str, ...]:
    """The words of a command, as `("artifacts", "list")`."""
    return tuple(context.command_path.split()[1:])


def in_force(entries: Iterable[Default], typed: Collection[str]) -> dict[str, Default]:
    """The defaults of a command that hold when the parameters in `typed` are typed, by parameter.

    A default gives way to the same option if typed, and to one with the same meaning. A default of `--set` is added.
    """
    pairs = [pair for one, other in ALTERNATIVES for pair in ((one, other), (other, one))]
    replaced = {name for name, alternative in pairs if alternative in typed}
    kept = (entry for entry in entries if entry.parameter not in replaced)
    return {entry.parameter: entry for entry in kept if entry.parameter == "set" or entry.parameter not in typed}


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
            raise UsageError(f"{str(error).rstrip('.')}. From {FILE}: {', '.join(named)}.") from error
        raise


def remind(command: str, defaults: Mapping[str, Default]) -> None:
    """Name the defaults that a result depends on, since nobody typed them."""
    shown = [d.shown for d in defaults.values() if d.parameter not in HOW]
    if shown and first_process():
        say(f"{command}: from {FILE}: {' '.join(shown)}")
