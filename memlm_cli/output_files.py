"""Files that a command writes where the user says, and showing a page that was written."""

import os
import sys
from pathlib import Path

from memlm_cli.console import say
from stages.artifacts.durable import disk_failure, write_atomically
from stages.errors import UsageError


def write_html(command: str, path: Path, text: str) -> None:
    """Write the page that `--html` names, and say where it is.

    Raises: UsageError if the file cannot be written; OSError if its disk is full or fails.
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        if disk_failure(error, path):
            raise
        raise UsageError(f"--html {path} cannot be written ({error.strerror}).") from error
    say(f"{command}: wrote {path}")


def check_output_file(option: str, path: Path) -> None:
    """Raises UsageError if no file can be at a path that an option names: it is a folder, or in none."""
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{option} {path} cannot be written: name a file in a folder that is there.")


def has_display() -> bool:
    """Whether a browser could open a window; one in the terminal would take that over."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def open_page(command: str, page: Path) -> None:
    """Open a page in the browser; where none can be started, say where it is."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        say(f"{command}: no browser here; {page.resolve()} is complete in itself: copy it to where there is one")
