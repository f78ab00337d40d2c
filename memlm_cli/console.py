"""Where a command writes: answers to stdout, all else to stderr; and files that the user names."""

import errno
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from stages.artifacts.durable import MAKE_ROOM, disk_failure
from stages.errors import ResourceError, UsageError
from stages.reporting import first_process


class Listener(Protocol):
    """Who draws on the terminal, and makes room for what is written there."""

    def hear(self, *, amid_line: bool = False) -> None:
        """Something is written now; `amid_line`: without an end of its line, where nothing is shown."""


@dataclass
class State:
    """Where words go at this moment."""

    reporter: Listener | None = None
    """The innermost reporter of work under way; None: nothing is worked on, or something else is waited for."""
    screen: TextIO | None = None
    """Where messages go while work is reported, even if a library's own words are sent elsewhere meanwhile."""


state = State()


def screen() -> TextIO:
    """Where messages go."""
    return state.screen or sys.stderr


def say(message: str, *, styled: bool = False) -> None:
    """Lines on stderr; `styled`: with bold and colours of memlm's own."""
    _write(message, screen(), styled=styled)


def answer(text: str, *, styled: bool = False) -> None:
    """Write an answer to stdout; `styled` as above."""
    if first_process():
        _write(text, sys.stdout, styled=styled)


def answer_part(text: str) -> bool:
    """A part of an answer, at once, as it is; whether anyone reads it."""
    return _write(text, sys.stdout, end="")


def _write(text: str, stream: TextIO, end: str = "\n", styled: bool = False) -> bool:
    """Write, unless the reader has gone away, which is no error: work goes on. Returns whether there is a reader.

    Answers are data, and stay as they are where no terminal shows them; a log of messages is sure to reach one.
    """
    shown = harmless(text, styled=styled) if stream.isatty() or stream is screen() else text
    try:
        if state.reporter is not None:
            state.reporter.hear(amid_line=stream.isatty() and not (text + end).endswith("\n"))
        print(shown, file=stream, end=end, flush=True)
    except BrokenPipeError:
        write_nowhere(stream)
        return False
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        write_nowhere(stream)  # what could not be written would fail once more when the process ends
        name = "stdout" if stream is sys.stdout else "stderr"
        raise ResourceError(f"There is no room where {name} goes ({error.strerror}). {MAKE_ROOM}") from None
    return True


def write_nowhere(stream: TextIO) -> None:
    """Let all that is still written to a stream vanish: its reader has gone away."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_closed_streams() -> None:
    """Let standard streams that the caller closed (`memlm train >&-`) lead nowhere.

    Their numbers are taken, lowest first: a file that is opened later would get one, and whatever libraries print.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - it stays open as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def on_terminal() -> bool:
    """Whether a person watches stderr."""
    return screen() is not None and screen().isatty()


def answers_on_terminal() -> bool:
    """Whether a person watches stdout."""
    return sys.stdout is not None and sys.stdout.isatty()


def printable(text: str) -> str:
    """A text in one line: what would move the cursor is spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str, *, styled: bool = False) -> str:
    """A text as a terminal may show it: what would command it, or turn the direction of writing, is spelled out.

    `styled`: bold and colours stay.
    """
    parts = _STYLES.split(text) if styled else [text]
    return "".join(part if place % 2 else _COMMANDS.sub(_spelled, part) for place, part in enumerate(parts))


_STYLES = re.compile(r"(\x1b\[[0-9;]*m)")
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _spelled(command: re.Match[str]) -> str:
    return command[0].encode("unicode_escape").decode()


def write_html(command: str, path: Path, text: str) -> None:
    """Write the page that `--html` names, and say where it is.

    Raises: UsageError if the file cannot be written; OSError if its disk is full or fails.
    """
    from stages.web import write_page

    try:
        replaces = write_page("--html", path, text)
    except OSError as error:
        if disk_failure(error, path):
            raise
        raise UsageError(f"--html {path} cannot be written ({error.strerror}).") from error
    say(f"{command}: {'replaced' if replaces else 'wrote'} {path}")


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
