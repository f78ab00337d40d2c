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
            known = did_you_mean(name, COMMANDS[command].references or ("none",))
            raise UsageError(f"{command} takes no reference {name!r}; {known}")


def reads_artifact(command: str, role: str) -> bool:
    """Whether a reference of a command must be an artifact; other references name files."""
    known = COMMANDS[command]
    return not known.reads_files and (role == "source" or bool(known.references[role].kinds))


def names_files(command: str, role: str) -> bool:
    """Whether a reference of a command is never an artifact."""
    known = COMMANDS[command]
    return known.reads_files if role == "source" else not known.references[role].kinds
