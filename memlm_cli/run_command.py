"""Running a stage from Python: from options of its command by name to the artifact."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import TypeAdapter, ValidationError

from memlm_cli.app import app, check_origin
from memlm_cli.arguments import tell_outcome
from memlm_cli.command import in_force, named_in_errors, remind
from memlm_cli.commands.stage import prepare, run_stage
from memlm_cli.defaults import Default, Defaults, read_defaults
from memlm_cli.options import NOT_OPTIONS, Common
from memlm_cli.progress import telling
from pipelines.catalogue import COMMANDS
from stages.artifacts.references import DEFAULT_STORE
from stages.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

COMMON = {field.name for field in fields(Common)} - {*NOT_OPTIONS, "json", "plan"}
"""Options of all commands that have an effect even if nothing is printed."""


def run_command(command: str, sources: Sequence[str], settings: Mapping[str, Any]) -> "Artifact":
    """Make or find the artifact of a command, with the defaults of `memlm.toml`, as if it were
    typed.

    Args:
        command: its name.
        sources: its argument; nothing is read from standard input.
        settings: options by name with `_` for `-`, lists for several values; other names are
            settings, as after `--set`, groups of them as nested mappings.
    Raises: the errors of the stage; UsageError for settings that it does not have.
    """
    if command not in COMMANDS:
        raise UsageError(f"There is no stage {command!r}; {did_you_mean(command, COMMANDS)}")
    known = COMMANDS[command]
    if not sources and not known.reads_files:
        raise UsageError(f"{command} reads {' or '.join(known.source)}: name one.")
    check_origin()
    typed = {name: value for name, value in settings.items() if value is not None}
    # A script decides about output itself, so defaults for that do not count.
    held = in_force([one for one in _defaults().of((command,)) if one.parameter != "json"], typed)
    with telling(command), named_in_errors(held):
        common, given = _common(typed, held)
        if known.first:
            given[known.first], *sources = sources
        remind(command, held)
        work = prepare(command, given, common)
        work.references["source"] = list(sources) if known.reads_files else sources[0]
        outcome = run_stage(command, work, common)
        tell_outcome(command, outcome, common)
    return outcome.artifact


def default_store() -> Path:
    """The default store: `$MEMLM_STORE`, else `store` of `memlm.toml`, else `memlm-store`.

    Raises: UsageError for an invalid `memlm.toml`.
    """
    if named := os.environ.get("MEMLM_STORE"):
        return Path(named)
    return next(
        (Path(e.value) for e in _defaults().entries if e.shared and e.parameter == "store"),
        DEFAULT_STORE,
    )


def _defaults() -> Defaults:
    """The defaults of `memlm.toml`. Raises: UsageError if it is invalid."""
    defaults = read_defaults(typer.main.get_command(app))
    if defaults.error is not None:
        raise defaults.error
    return defaults


def _common(typed: Mapping[str, Any], held: Mapping[str, Default]) -> tuple[Common, dict[str, Any]]:
    """Values of the options of all commands, and values of other options. Raises: UsageError for a
    wrong one.
    """
    given = {**{name: default.value for name, default in held.items() if name != "set"}, **typed}
    shared = {name: given.pop(name) for name in COMMON & given.keys()}
    if isinstance(shared.get("set"), str):
        shared["set"] = [shared["set"]]
    if "set" in held:
        shared["default_set"] = held["set"].value
    try:
        return TypeAdapter(Common).validate_python({**shared, "by_default": frozenset(held)}), given
    except ValidationError as error:
        wrong = (
            ": ".join([*map(str, problem["loc"][:1]), problem["msg"]]) for problem in error.errors()
        )
        raise UsageError("; ".join(wrong).replace("Value error, ", "")) from None
