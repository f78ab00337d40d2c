"""Showing a page that was written: in the browser, or by saying where it is."""

import os
import sys
from pathlib import Path

from memlm_cli.console import on_terminal, say


def has_display() -> bool:
    """Whether a browser could open a window; one in the terminal would take that over."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def open_page(command: str, page: Path) -> None:
    """Open a page in the browser; where none can be started, say where it is."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        _say_where(command, page)


def tell_page(command: str, page: Path) -> None:
    """To a person at a terminal without a display, say where a page is."""
    if on_terminal() and not has_display():
        _say_where(command, page)


def _say_where(command: str, page: Path) -> None:
    where = page.resolve()
    say(f"{command}: no browser here; the page is {where}, complete in itself: copy it to where there is one")
