"""Writes answers to stdout, everything else to stderr, and progress as fits the stream."""

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from memlm_cli.ticks import Ticks
from stages.artifacts.disk_failures import MAKE_ROOM
from stages.errors import ResourceError
from stages.numbers import duration, number
from stages.reporting import first_process

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30.0
QUIET_SECONDS = 2.0
"""After so long without a word, and without progress, a terminal or a notebook shows that work goes on."""

_log: Callable[[str], None] | None = None
"""Writes lines into the log of the command; None: there is none."""
_telling: "ConsoleReporter | None" = None
"""The innermost of those that tell of work under way; None: nothing is worked on, or something else is waited for."""
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
        if _telling is not None:
            _telling.hear(amid_line=stream.isatty() and not (text + end).endswith("\n"))
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


def _spelled_figures(figures: dict[str, float]) -> list[str]:
    return [f"{figure_name(name)} {number(value)}" for name, value in figures.items()]


class ConsoleReporter:
    """A stage's words on stderr; its progress as a bar on a terminal, else as a line every 30 seconds.

    Between `with` and its end the bar goes on counting seconds, lines go on, and where there is no progress to show a
    line says after a while that work goes on. Of several, one within the other, the innermost tells.
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
        side_by_side: others tell at the same time: progress is lines on a terminal, too.
        """
        self.command = command
        self.soon: bool = soon or (_telling is not None and _telling.soon)
        patience = QUIET_SECONDS if self.soon else SECONDS_BETWEEN_LINES
        with_bar = on_terminal() and not side_by_side
        lines = Lines(command, clock, note if with_bar else say, patience)
        self._progress = Bar(lines, Waiting(command, clock), clock) if with_bar else lines
        self._side_by_side = side_by_side
        self._speaks = first_process()
        self._lock = RLock()
        self._before: tuple[TextIO | None, ConsoleReporter | None] = (None, None)
        self._ticks = Ticks(self._tick)

    def __enter__(self) -> Self:
        global _screen, _telling
        if not self._side_by_side:
            self._before = _screen, _telling
            self.hear()
            if self._before[1] is not None:
                self._before[1].hear()
            _screen, _telling = _stderr(), self
        if self._speaks:
            self._ticks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _screen, _telling
        self._ticks.stop()
        with self._lock:
            self._progress.close()
            if not self._side_by_side:
                _screen, _telling = self._before
        if _telling is not None:
            _telling.hear()

    def _tick(self) -> None:
        with self._lock:
            if self._side_by_side or _telling is self:
                self._progress.tick()

    def hear(self, *, amid_line: bool = False) -> None:
        """Something is written now; `amid_line`: on a terminal, without an end of its line."""
        with self._lock:
            self._progress.hear(amid_line)

    def info(self, message: str) -> None:
        if self._speaks:
            with self._lock:
                self._progress.write(f"{self.command}: {message}")

    def warning(self, message: str) -> None:
        self.info(f"warning: {message}")

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        if self._speaks:
            with self._lock:
                self._progress.show(done, total, unit, figures)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While something else is written on the terminal."""
        with self._lock, self._progress.aside():
            yield


def telling(command: str) -> AbstractContextManager[object]:
    """That a command is at work, from its first line to its last; one that another runs is part of that one."""
    return ConsoleReporter(command) if _telling is None else nullcontext()


@contextmanager
def not_working() -> Iterator[None]:
    """While something else is waited for than work: nobody says that work goes on."""
    global _telling
    before, _telling = _telling, None
    if before is not None:
        before.hear()
    try:
        yield
    finally:
        _telling = before
        if before is not None:
            before.hear()


class Waiting:
    """A line on a terminal that says how long nothing was said; it is gone before anything else is written."""

    def __init__(self, command: str, clock: Callable[[], float]) -> None:
        self.command = command
        self._clock = clock
        self._shown = ""
        self._since = clock()
        self._amid_line = False

    def tick(self) -> None:
        quiet = self._clock() - self._since
        if quiet >= QUIET_SECONDS and not self._amid_line:
            self._shown = f"{self.command}: working, {int(quiet)} s"
            print(f"\r{self._shown}", end="", file=_stderr(), flush=True)

    def clear(self, amid_line: bool = False) -> None:
        """Something else is written now; on a line that it leaves open nothing is shown."""
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="", file=_stderr(), flush=True)
        self._shown, self._since, self._amid_line = "", self._clock(), amid_line


class TimeLeft:
    """The time until work ends, at its mean speed since it was first heard of; it falls while nothing is reported."""

    def __init__(self, done: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first, self._began = done, clock()
        self._heard, self._left = self._began, 0.0

    def hear(self, done: int, total: int) -> None:
        """So much of all is done."""
        self._heard = self._clock()
        if done > self._first:
            self._left = (self._heard - self._began) / (done - self._first) * (total - done)

    def words(self) -> list[str]:
        """`["1:05 left"]`; empty where it is not known, or over."""
        left = self._left - (self._clock() - self._heard)
        return [f"{duration(left)} left"] if left > 0 else []


class Bar:
    """Progress on a terminal; in the log it is lines."""

    FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}{postfix}]"

    def __init__(
        self,
        logged: "Lines | None" = None,
        waiting: Waiting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bar: tqdm | None = None
        self._logged = logged
        self._waiting = waiting
        self._clock = clock
        self._left = TimeLeft(0, clock)
        self._figures: list[str] = []

    def hear(self, amid_line: bool = False) -> None:
        """Something else is written."""
        if self._logged is not None:
            self._logged.hear()
        if self._waiting is not None:
            self._waiting.clear(amid_line)

    def tick(self) -> None:
        """Let a terminal see that time goes by."""
        if self._logged is not None:
            self._logged.tick()
        if self._bar is not None:
            self._show_figures(self._bar)
            self._bar.refresh()
        elif self._waiting is not None:
            self._waiting.tick()

    def write(self, line: str) -> None:
        if self._bar is None:
            say(line)
        else:
            self._bar.write(harmless(line), file=_stderr())
            note(line)

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._bar is None else self._bar.external_write_mode(_stderr())

    def show(self, done: int, total: int, unit: str, figures: dict[str, float]) -> None:
        if self._logged is not None:
            self._logged.show(done, total, unit, figures)
        bar = self._bar
        if bar is None or (bar.total, bar.unit) != (total, f" {unit}") or done < bar.n:
            bar = self._start(done, total, unit)
        self._left.hear(done, total)
        self._figures = _spelled_figures(figures)
        self._show_figures(bar)
        bar.update(done - bar.n)

    def _show_figures(self, bar: "tqdm") -> None:
        bar.set_postfix_str(", ".join([*self._left.words(), *self._figures]), refresh=False)

    def _start(self, done: int, total: int, unit: str) -> "tqdm":
        from tqdm import tqdm

        self._end()
        self._left = TimeLeft(done, self._clock)
        shape = {"bar_format": self.FORMAT, "dynamic_ncols": True, "leave": False}
        self._bar = tqdm(total=total, initial=done, unit=f" {unit}", file=_stderr(), **shape)
        return self._bar

    def _end(self) -> None:
        if self._waiting is not None:
            self._waiting.clear()
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        self._end()
        if self._logged is not None:
            self._logged.close()


class Lines:
    """Progress in a log file."""

    def __init__(
        self,
        command: str,
        clock: Callable[[], float],
        write: Callable[[str], None] = say,
        patience: float = SECONDS_BETWEEN_LINES,
    ) -> None:
        """Args:
        patience: seconds until the first line of some work, or that work goes on without a word.
        """
        self.command = command
        self._clock = clock
        self._write = write
        self._patience = self._wait = patience
        self._work: tuple[int, int, str, dict[str, float]] | None = None
        self._first = 0
        self._left = TimeLeft(0, clock)
        self._last = self._heard = clock()

    def write(self, line: str) -> None:
        self._write(line)
        self.hear()

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def hear(self, amid_line: bool = False) -> None:
        """Something else is written."""
        self._heard = self._clock()
        if self._work is None:
            self._last, self._wait = self._heard, self._patience

    def show(self, done: int, total: int, unit: str, figures: dict[str, float]) -> None:
        now = self._clock()
        anew = self._work is None or self._work[1:3] != (total, unit) or done < self._first
        self._work = (done, total, unit, figures)
        if anew:
            self._first, self._last, self._left = done, now, TimeLeft(done, self._clock)
            self._wait = self._patience
        self._left.hear(done, total)
        if not anew:
            self.tick()

    def tick(self) -> None:
        """A line, if the last is some time ago, of what was last reported; if nothing was, that work goes on."""
        now, heard = self._clock(), self._heard
        if now - self._last >= self._wait:
            said = f"working, {int(now - heard)} s" if self._work is None else self._line(*self._work)
            self._write(f"{self.command}: {said}")
            self._heard, self._last, self._wait = heard, now, SECONDS_BETWEEN_LINES

    def _line(self, done: int, total: int, unit: str, figures: dict[str, float]) -> str:
        parts = [f"{done:,} of {total:,} {unit} ({done / max(total, 1):.0%})"]
        return ", ".join([*parts, *_spelled_figures(figures), *self._left.words()])

    def close(self) -> None:
        self._work = None
