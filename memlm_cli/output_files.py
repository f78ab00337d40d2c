"""Files that a command writes where the user says."""

from pathlib import Path

from stages.artifacts.durable import disk_failure, write_atomically
from stages.errors import UsageError


def write_output_file(option: str, path: Path, text: str) -> None:
    """Raises: UsageError if the file that an option names cannot be written; OSError if its disk is full or fails."""
    try:
        write_atomically(path, text)
    except OSError as error:
        if disk_failure(error, path):
            raise
        raise UsageError(f"{option} {path} cannot be written ({error.strerror}).") from error


def check_output_file(option: str, path: Path) -> None:
    """Raises UsageError if no file can be at a path that an option names: it is a folder, or in none."""
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{option} {path} cannot be written: name a file in a folder that is there.")
