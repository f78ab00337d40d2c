"""`memlm.toml`: defaults of options, in the folder in which memlm is started.

A value is what would be typed after the option; typed options and the environment win over it.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from stages.errors import UsageError, did_you_mean

FILE = Path("memlm.toml")
SHARED = (
    "store",
    "device",
    "workers",
    "executor",
    "precision",
    "checkpoint-seconds",
    "no-wait",
)
"""Options that are allowed at the top of the file, for all commands that have them."""


@dataclass(frozen=True)
class Default:
    """One line of the file, for one command."""

    command: tuple[str, ...]
    """Words of the command, as `("artifacts", "list")`."""
    option: str
    """Name of the option without dashes."""
    parameter: str
    value: Any
    """The value as typed: a text or a list of texts; for a switch a boolean."""
    shared: bool
    """Whether it is for all commands."""

    @property
    def shown(self) -> str:
        """The default as typed on the command line; a switch that is off is shown as in the file."""
        if self.value is False:
            return f"{self.option} = false"
        if self.value is True:
            return f"--{self.option}"
        values = self.value if isinstance(self.value, list) else [self.value]
        return shlex.join(word for value in values for word in (f"--{self.option}", value))


@dataclass(frozen=True)
class Defaults:
    """The defaults in the file; or why it cannot be read."""

    entries: tuple[Default, ...] = ()
    error: UsageError | None = None

    @property
    def by_command(self) -> dict[str, Any]:
        """Defaults in Click's form: command -> parameter -> value, nested for groups of commands."""
        tables: dict[str, Any] = {}
        for entry in self.entries:
            table = tables
            for word in entry.command:
                table = table.setdefault(word, {})
            table[entry.parameter] = entry.value
        return tables

    def of(self, command: tuple[str, ...]) -> list[Default]:
        return [entry for entry in self.entries if entry.command == command]


def read_defaults(group: Any, path: Path = FILE) -> Defaults:
    """The defaults in a file, checked against the commands of `group`; empty if there is no such
    file.
    """
    if not path.exists():
        return Defaults()
    # importing settings takes a quarter of the time of a help page
    from stages.config import read_toml

    try:
        table = read_toml(path)
        return Defaults((*_shared(table, group), *_own(table, group)))
    except UsageError as error:
        return Defaults(error=error)


def _shared(table: Mapping[str, Any], group: Any) -> Iterator[Default]:
    """Values for all commands that have the option."""
    for option in SHARED:
        if (key := option.replace("-", "_")) in table:
            having = [
                (words, command)
                for words, command in _below(group.commands)
                if option in _options(command)
            ]
            yield from (
                _default(words, command, option, table[key], shared=True)
                for words, command in having
            )


def _own(table: Mapping[str, Any], group: Any, above: tuple[str, ...] = ()) -> Iterator[Default]:
    """Values for single commands. Raises: UsageError for an unknown name, or an illegal value."""
    below, options = getattr(group, "commands", {}), _options(group) if above else {}
    for name, value in ((key.replace("_", "-"), value) for key, value in table.items()):
        place = (*above, name)
        if name in below:
            if not isinstance(value, dict):
                raise UsageError(
                    f"{FILE}: {name!r} is a command, and takes options: [{'.'.join(place)}]."
                )
            yield from _own(value, below[name], place)
        elif name in options:
            yield _default(above, group, name, value)
        elif above or name not in SHARED:
            what = f"{' '.join(above)} has no option" if above else "there is no option or command"
            known = did_you_mean(name, [*options, *below, *(() if above else SHARED)])
            raise UsageError(f"{FILE}: {what} {name!r}; {known}")


def _default(
    words: tuple[str, ...], command: Any, option: str, value: Any, *, shared: bool = False
) -> Default:
    """A value as parsed by its option. Raises: UsageError if the option refuses it."""
    parameter, place = _options(command)[option], option if shared else ".".join((*words, option))
    try:
        # Click parses the value, so that the file is as strict as the command line, with the same
        # messages.
        typed = _as_typed(parameter, value)
        context = typer.Context(command, info_name=" ".join(("memlm", *words)))
        parameter.handle_parse_result(context, {parameter.name: typed}, [])
    except (typer.BadParameter, UsageError) as error:
        message = getattr(error, "message", str(error)).removeprefix("Value error, ")
        raise UsageError(f"{FILE}: {place}: {message}") from None
    return Default(words, option, parameter.name, typed, shared)


def _as_typed(parameter: Any, value: Any) -> Any:
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"is true or false, not {value!r}.")
        return value
    values = value if parameter.multiple and isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
        raise UsageError(
            f"takes {'texts or numbers' if parameter.multiple else 'a text or a number'}, not {value!r}."
        )
    return [str(one) for one in values] if parameter.multiple else str(value)


def _below(
    commands: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in commands.items():
        if below := getattr(command, "commands", None):
            yield from _below(below, (*above, name))
        else:
            yield (*above, name), command


def _options(command: Any) -> dict[str, Any]:
    """The options of a command by their names without dashes; those that `--help` hides are for
    memlm itself.
    """
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    return {
        opt[2:]: parameter for parameter in shown for opt in parameter.opts if opt.startswith("--")
    }
