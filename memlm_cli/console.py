"""Writes answers to stdout, everything else to stderr, and progress as fits the stream."""

import errno
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, RLock, Thread
from types import TracebackType
from typing import Self, TextIO

from stages.artifacts.durable import MAKE_ROOM
from stages.errors import ResourceError
from stages.numbers import duration, number
from stages.reporting import first_process

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_TICKS = 1.0
SECONDS_BETWEEN_DRAWINGS = 0.1
QUIET_SECONDS = 2.0
"""After so long without a word, and without progress, a terminal or a notebook shows that work goes on."""

_log: Callable[[str], None] | None = None
"""Writes lines into the log of the command; None: there is none."""
_current: "ConsoleReporter | None" = None
"""The innermost reporter of work under way; None: nothing is worked on, or something else is waited for."""
_screen: TextIO | None = None
"""Where all that is said goes while work is reported, even if a library's own words are sent elsewhere meanwhile."""


def _stderr() -> TextIO:
    return _screen or sys.stderr


def log_to(write: Callable[[str], None] | None) -> None:
    """Let all that is said, and progress now and then, be written there too."""
    global _log
    _log = write


def note(message: str) -> None:
    """Lines in the log alone."""
    if _log is not None:
        _log(harmless(_STYLES.sub("", message)))


def say(message: str, *, styled: bool = False) -> None:
    """Lines on stderr, and in the log; `styled`: with bold and colours of memlm's own."""
    _write(message, _stderr(), styled=styled)
    note(message)


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
    shown = harmless(text, styled=styled) if stream.isatty() or stream is _stderr() else text
    try:
        if _current is not None:
            _current.hear(amid_line=stream.isatty() and not (text + end).endswith("\n"))
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
    return _stderr() is not None and _stderr().isatty()


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


def figure_name(name: str) -> str:
    """`tokens_per_second` -> `tokens/s`."""
    return name.replace("_per_second", "/s").replace("_", " ")


class Work:
    """Progress of some work, and the time until it ends: at its mean speed since it was first reported."""

    FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}{postfix}]"

    def __init__(self, done: int, total: int, unit: str, clock: Callable[[], float]) -> None:
        self.done, self.total, self.unit = done, total, unit
        self._figures: dict[str, float] = {}
        self._clock = clock
        self._first, self._began = done, clock()
        self._heard, self._left = self._began, 0.0

    def report(self, done: int, figures: dict[str, float]) -> None:
        self.done, self._figures, self._heard = done, figures, self._clock()
        if done > self._first:
            self._left = (self._heard - self._began) / (done - self._first) * (self.total - done)

    def line(self) -> str:
        """`30 of 1,000 steps (3%), loss 4.25, 16:10 left`."""
        counted = f"{self.done:,} of {self.total:,} {self.unit} ({self.done / max(self.total, 1):.0%})"
        return ", ".join([counted, *self._words(), *self._time_left()])

    def bar(self) -> str:
        """The same for a terminal, as wide as that is, drawn by tqdm."""
        from tqdm import tqdm

        return tqdm.format_meter(
            *(self.done, self.total, self._clock() - self._began),
            ncols=shutil.get_terminal_size().columns - 1,
            unit=f" {self.unit}",
            bar_format=self.FORMAT,
            postfix=", ".join([*self._time_left(), *self._words()]),
        )

    def _words(self) -> list[str]:
        return [f"{figure_name(name)} {number(value)}" for name, value in self._figures.items()]

    def _time_left(self) -> list[str]:
        """`["1:05 left"]`, less while nothing is reported; empty where it is not known, or over."""
        left = self._left - (self._clock() - self._heard)
        return [f"{duration(left)} left"] if left > 0 else []


class ConsoleReporter:
    """Messages of a stage on stderr, and its progress: as a bar on a terminal, else as a line every 30 seconds.

    Between `with` and its end the bar goes on counting seconds, lines go on, and where there is no progress to show a
    line says after a while that work goes on. Of several, one within the other, the innermost speaks.
    """

    def __init__(
        self,
        command: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        soon: bool = False,
        side_by_side: bool = False,
    ) -> None:
        """Args:
        soon: without a terminal the first line comes after two seconds, too, for a person who watches a notebook; that
            holds for reporters within this one.
        side_by_side: others report at the same time: progress is lines on a terminal, too.
        """
        self.command = command
        self.soon: bool = soon or (_current is not None and _current.soon)
        self._clock = clock
        self._patience = QUIET_SECONDS if self.soon else SECONDS_BETWEEN_LINES
        self._in_place = on_terminal() and not side_by_side
        self._side_by_side = side_by_side
        self._speaks = first_process()
        self._lock, self._stopped = RLock(), Event()
        self._before: tuple[TextIO | None, ConsoleReporter | None] = (None, None)
        self._work: Work | None = None
        self._heard = self._last_line = clock()
        self._wait = self._patience
        self._shown, self._drawn, self._amid_line = "", 0.0, False

    def __enter__(self) -> Self:
        global _screen, _current
        if not self._side_by_side:
            self._before = _screen, _current
            self.hear()
            if self._before[1] is not None:
                self._before[1].hear()
            _screen, _current = _stderr(), self
        if self._speaks:
            Thread(target=self._run, name="ticks", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _screen, _current
        self._stopped.set()
        with self._lock:
            self._draw("")
            if not self._side_by_side:
                _screen, _current = self._before
        if _current is not None:
            _current.hear()

    def _run(self) -> None:
        """Move what is shown while nothing is reported."""
        while not self._stopped.wait(SECONDS_BETWEEN_TICKS):
            try:
                self._tick()
            except (OSError, ValueError):  # nobody reads any more
                return

    def _tick(self) -> None:
        with self._lock:
            if self._side_by_side or _current is self:
                self._write_line_if_due()
                self._show()

    def hear(self, *, amid_line: bool = False) -> None:
        """Something is written now; `amid_line`: on a terminal, without an end of its line, where nothing is shown."""
        with self._lock:
            self._draw("")
            self._amid_line, self._heard = amid_line, self._clock()
            if self._work is None:
                self._last_line, self._wait = self._heard, self._patience

    def info(self, message: str) -> None:
        if self._speaks:
            with self.aside():
                say(f"{self.command}: {message}")

    def warning(self, message: str) -> None:
        self.info(f"warning: {message}")

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        if not self._speaks:
            return
        with self._lock:
            work, now = self._work, self._clock()
            if work is None or (work.total, work.unit) != (total, unit) or done < work.done:
                work = self._work = Work(done, total, unit, self._clock)
                self._last_line, self._wait, self._drawn = now, self._patience, -math.inf
            work.report(done, figures)
            self._write_line_if_due()
            if now - self._drawn >= SECONDS_BETWEEN_DRAWINGS or done == total:
                self._show()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While something else is written on the terminal."""
        with self._lock:
            self.hear()
            yield
            if self._work is not None:
                self._show()

    def _write_line_if_due(self) -> None:
        """The line of work that was last reported, or that work goes on; on a terminal for the log alone."""
        now, heard = self._clock(), self._heard
        if now - self._last_line >= self._wait:
            words = f"working, {int(now - heard)} s" if self._work is None else self._work.line()
            (note if self._in_place else say)(f"{self.command}: {words}")
            self._heard, self._last_line, self._wait = heard, now, SECONDS_BETWEEN_LINES

    def _show(self) -> None:
        """Draw the bar on a terminal; without one, after a while, how long nothing was said."""
        if self._in_place and not self._amid_line:
            quiet = self._clock() - self._heard
            waiting = f"{self.command}: working, {int(quiet)} s" if quiet >= QUIET_SECONDS else ""
            self._draw(self._work.bar() if self._work is not None else waiting)

    def _draw(self, line: str) -> None:
        """Write over the line that is shown; an empty one leaves nothing of it."""
        if line or self._shown:
            blanks = " " * (len(self._shown) - len(line))
            print(f"\r{line}{blanks}" + ("" if line else "\r"), end="", file=_stderr(), flush=True)
        self._shown, self._drawn = line, self._clock()


def telling(command: str) -> AbstractContextManager[object]:
    """That a command is at work, from its first line to its last; one that another runs is part of that one."""
    return ConsoleReporter(command) if _current is None else nullcontext()


@contextmanager
def not_working() -> Iterator[None]:
    """While something else is waited for than work: nobody says that work goes on."""
    global _current
    before, _current = _current, None
    if before is not None:
        before.hear()
    try:
        yield
    finally:
        _current = before
        if before is not None:
            before.hear()
