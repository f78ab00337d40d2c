"""`memlm.toml`: defaults of options, in the folder in which memlm is started.

    store = "../runs"          # options that all commands share
    device = "cpu"

    [train]                    # options of one command, named as on the command line
    model = "wikitext2-small"
    steps = 500

    [artifacts.list]
    json = true

A value stands for what would be typed behind the option; options and the environment win over it.
"""

import shlex
import tomllib
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
    "verify-inputs",
    "log-file",
)
"""Options that may stand at the top, for all commands that have them."""


@dataclass(frozen=True)
class Default:
    """One line of the file, for one command."""

    command: tuple[str, ...]
    """Its words, as `("artifacts", "list")`."""
    option: str
    """Its name without dashes."""
    parameter: str
    value: Any
    """The value as typed: a text, a list of texts, or for a switch a boolean."""
    line: int
    shared: bool
    """Whether it is for all commands."""

    @property
    def shown(self) -> str:
        """The same on the command line; for a switch that is off, which few options can express, the line."""
        if self.value is False:
            return f"{self.option} = false"
        if self.value is True:
            return f"--{self.option}"
        return shlex.join(w for one in _listed(self.value) for w in (f"--{self.option}", one))


@dataclass(frozen=True)
class Defaults:
    """The defaults in the file; or why it cannot be read."""

    entries: tuple[Default, ...] = ()
    error: UsageError | None = None

    @property
    def by_command(self) -> dict[str, Any]:
        """As the command line reads it: command -> parameter -> value, nested for groups of commands."""
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
    """The defaults in a file, checked against the commands of `group`; none where there is no such file."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Defaults()
    except (OSError, ValueError) as error:
        return Defaults(error=UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}."))
    try:
        return Defaults(tuple(_File(path, text).entries(group)))
    except UsageError as error:
        return Defaults(error=error)


class _File:
    """The file as it is read."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        try:
            self.table = tomllib.loads(text)
        except ValueError as error:
            raise UsageError(f"{path} is no TOML: {error}.") from None
        except RecursionError:
            raise UsageError(f"{path} is nested too deeply.") from None

    def entries(self, group: Any) -> Iterator[Default]:
        """Shared ones first, so that those of a command win."""
        commands = group.commands
        for key, value in self.table.items():
            if (option := key.replace("_", "-")) in SHARED:
                for words, command in _below(commands):
                    if option in _options(command):
                        yield self._default(words, command, option, value, (key,))
            elif key not in commands:
                raise self._error((key,), f"there is no option or command {key!r}; {_known(key, commands)}")
        for key, value in self.table.items():
            if key in commands:
                yield from self._of_command((key,), commands[key], value)

    def _of_command(self, words: tuple[str, ...], command: Any, table: Any) -> Iterator[Default]:
        if not isinstance(table, dict):
            raise self._error(words, f"{words[-1]!r} is a command, and takes options: [{'.'.join(words)}].")
        below = getattr(command, "commands", {})
        options = _options(command)
        for key, value in table.items():
            option, place = key.replace("_", "-"), (*words, key)
            if key in below:
                yield from self._of_command(place, below[key], value)
            elif option in options:
                yield self._default(words, command, option, value, place)
            else:
                known = did_you_mean(option, [*options, *below])
                raise self._error(place, f"{' '.join(words)} has no option {option!r}; {known}")

    def _default(
        self, words: tuple[str, ...], command: Any, option: str, value: Any, place: tuple[str, ...]
    ) -> Default:
        parameter = _options(command)[option]
        typed = self._as_typed(parameter, value, place)
        context = typer.Context(command, info_name=" ".join(("memlm", *words)))
        try:
            parameter.handle_parse_result(context, {parameter.name: typed}, [])
        except typer.BadParameter as error:
            raise self._error(place, f"{'.'.join(place)}: {error.message.removeprefix('Value error, ')}") from None
        except UsageError as error:
            raise self._error(place, f"{'.'.join(place)}: {error}") from None
        return Default(words, option, parameter.name, typed, self.line(place), len(place) == 1)

    def _as_typed(self, parameter: Any, value: Any, place: tuple[str, ...]) -> Any:
        if parameter.is_flag:
            if not isinstance(value, bool):
                raise self._error(place, f"{'.'.join(place)} is true or false, not {value!r}.")
            return value
        values = value if parameter.multiple and isinstance(value, list) else [value]
        if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
            kind = "texts or numbers" if parameter.multiple else "a text or a number"
            raise self._error(place, f"{'.'.join(place)} takes {kind}, not {value!r}.")
        return [str(one) for one in values] if parameter.multiple else str(value)

    def line(self, place: tuple[str, ...]) -> int:
        """The line on which a key stands: the first with which the file, cut there, has the key."""
        lines, readable = self.text.splitlines(keepends=True), 0
        for count in range(1, len(lines) + 1):
            try:
                table: Any = tomllib.loads("".join(lines[:count]))
            except ValueError:
                continue
            for word in place:
                table = table.get(word) if isinstance(table, dict) else None
            if table is not None:
                return readable + 1
            readable = count
        return len(lines)

    def _error(self, place: tuple[str, ...], message: str) -> UsageError:
        return UsageError(f"{self.path}, line {self.line(place)}: {message}")


def _below(commands: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in commands.items():
        if below := getattr(command, "commands", None):
            yield from _below(below, (*above, name))
        else:
            yield (*above, name), command


def _options(command: Any) -> dict[str, Any]:
    """The options of a command by their names without dashes; those that `--help` hides are for memlm itself."""
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    return {opt[2:]: parameter for parameter in shown for opt in parameter.opts if opt.startswith("--")}


def _known(key: str, commands: Mapping[str, Any]) -> str:
    return did_you_mean(key, [*SHARED, *commands])


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
