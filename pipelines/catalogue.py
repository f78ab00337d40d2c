"""The commands that make artifacts: their stages, their settings, and the references they take."""

from typing import Any

from stages.artifacts.kinds import COMMANDS, STAGES
from stages.errors import UsageError, did_you_mean


def stage_of(command: str) -> Any:
    """A new stage object. Raises UsageError for an unknown command."""
    return STAGES.load(command)()


def config_of(command: str) -> Any:
    """The class of a command's settings. Raises UsageError for an unknown command."""
    return STAGES.settings(command)


def check_references(command: str, names: list[str]) -> None:
    """Raises UsageError if a command takes no reference of one of these names."""
    for name in names:
        if name not in COMMANDS[command].references:
            hint = did_you_mean(name, COMMANDS[command].references or ("none",))
            raise UsageError(f"{command} takes no reference {name!r}; {hint}")


def reads_artifact(command: str, role: str) -> bool:
    """Whether a reference of a command must be an artifact; other references name files."""
    entry = COMMANDS[command]
    return not entry.reads_files and (role == "source" or bool(entry.references[role].kinds))


def names_files(command: str, role: str) -> bool:
    """Whether a reference of a command is never an artifact."""
    entry = COMMANDS[command]
    return entry.reads_files if role == "source" else not entry.references[role].kinds
