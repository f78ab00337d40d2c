"""Output of a command: answers to stdout, everything else to stderr; and files that the user names."""

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
    """Something that draws on the terminal, and makes room when other text is written there."""

    def hear(self, *, amid_line: bool = False) -> None:
        """Called before a text is written; `amid_line`: it does not end its line, so nothing may be
        drawn after it.
        """


@dataclass
class State:
    """Present destinations of messages."""

    reporter: Listener | None = None
    """The innermost reporter of work under way; None: there is no work, or the command waits for
    something else.
    """
    screen: TextIO | None = None
    """Stream of messages while work is reported, even if a library's own output is redirected
    meanwhile.
    """


state = State()


def screen() -> TextIO:
    """The stream of messages."""
    return state.screen or sys.stderr


def say(message: str, *, styled: bool = False) -> None:
    """Write lines to stderr; `styled`: with memlm's own bold and colours."""
    _write(message, screen(), styled=styled)


def answer(text: str, *, styled: bool = False) -> None:
    """Write an answer to stdout; `styled` as in `say`."""
    if first_process():
        _write(text, sys.stdout, styled=styled)


def answer_part(text: str) -> bool:
    """Write a part of an answer at once, unchanged; returns whether anyone reads it."""
    return _write(text, sys.stdout, end="")


def _write(text: str, stream: TextIO, end: str = "\n", styled: bool = False) -> bool:
    """Write, unless the reader has gone away. That is no error: work continues. Returns whether
    there is a reader.

    Answers are data, and stay unchanged outside a terminal. Messages are made harmless everywhere,
    since logs are read in terminals.
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
        write_nowhere(stream)  # unwritten data would fail again when the process ends
        name = "stdout" if stream is sys.stdout else "stderr"
        raise ResourceError(
            f"There is no room where {name} goes ({error.strerror}). {MAKE_ROOM}"
        ) from None
    return True


def write_nowhere(stream: TextIO) -> None:
    """Discard everything written to a stream from now on, since its reader has gone away."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_closed_streams() -> None:
    """Point standard streams that the caller closed (`memlm train >&-`) to the null device.

    Otherwise a file opened later would get the free descriptor, and with it the output of
    libraries.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def on_terminal() -> bool:
    """Whether a person watches stderr."""
    return screen() is not None and screen().isatty()


def answers_on_terminal() -> bool:
    """Whether a person watches stdout."""
    return sys.stdout is not None and sys.stdout.isatty()


def printable(text: str) -> str:
    """A text in one line, with characters that move the cursor spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str, *, styled: bool = False) -> str:
    """A text that is safe on a terminal: control characters and changes of writing direction are
    spelled out.

    `styled`: bold and colours stay.
    """
    parts = _STYLES.split(text) if styled else [text]
    return "".join(
        part if place % 2 else _COMMANDS.sub(_spelled, part) for place, part in enumerate(parts)
    )


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


def has_display() -> bool:
    """Whether a browser could open a window; a browser in the terminal would take the terminal
    over.
    """
    return sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )


def open_page(command: str, page: Path) -> None:
    """Open a page in the browser; if none can be started, say where the page is."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        say(
            f"{command}: no browser here; {page.resolve()} is complete in itself: copy it to where there is one"
        )
