"""Running a stage from Python: from options of its command by name to the artifact."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from memlm_cli.app import check_origin
from memlm_cli.arguments import tell_outcome
from memlm_cli.options import Common
from memlm_cli.progress import telling
from memlm_cli.work.stage import prepare, run_stage
from stages.artifacts.executors.processes import end_if_imported
from stages.artifacts.kinds import COMMANDS
from stages.artifacts.references import DEFAULT_STORE
from stages.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact

COMMON = {field.name for field in fields(Common)} - {"json", "plan"}
"""Options of all commands that have an effect even if nothing is printed."""


def run_command(command: str, sources: Sequence[str], settings: Mapping[str, Any]) -> "Artifact":
    """Make or find the artifact of a command, as if it were typed.

    Args:
        command: its name.
        sources: its argument; nothing is read from standard input.
        settings: options by name with `_` for `-`, lists for several values; other names are
            settings, as after `--set`, groups of them as nested mappings.
    Raises: the errors of the stage; UsageError for settings that it does not have.
    """
    end_if_imported()
    if command not in COMMANDS:
        raise UsageError(f"There is no stage {command!r}; {did_you_mean(command, COMMANDS)}")
    entry = COMMANDS[command]
    if not sources and not entry.reads_files:
        raise UsageError(f"{command} reads {' or '.join(entry.source)}: name one.")
    check_origin()
    typed = {name: value for name, value in settings.items() if value is not None}
    with telling(command):
        common, options = _common(typed)
        if entry.first:
            options[entry.first], *sources = sources
        work = prepare(command, options, common)
        work.references["source"] = list(sources) if entry.reads_files else sources[0]
        outcome = run_stage(command, work, common)
        tell_outcome(command, outcome, common)
    return outcome.artifact


def default_store() -> Path:
    """The default store: `$MEMLM_STORE`, else `memlm-store`."""
    return Path(os.environ.get("MEMLM_STORE") or DEFAULT_STORE)


def _common(typed: Mapping[str, Any]) -> tuple[Common, dict[str, Any]]:
    """Values of the options of all commands, and values of other options. Raises: UsageError for a
    wrong one.
    """
    others = dict(typed)
    shared = {name: others.pop(name) for name in COMMON & others.keys()}
    if isinstance(shared.get("set"), str):
        shared["set"] = [shared["set"]]
    try:
        return TypeAdapter(Common).validate_python(shared), others
    except ValidationError as error:
        faults = []
        for problem in error.errors():
            place = map(str, problem["loc"][:1])
            faults.append(": ".join([*place, problem["msg"]]))
        raise UsageError("; ".join(faults).replace("Value error, ", "")) from None
