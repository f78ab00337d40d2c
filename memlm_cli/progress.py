"""Progress of work: a bar on a terminal, else a line now and then; and a sign of life without
progress.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, RLock, Thread
from typing import Self, TextIO

from memlm_cli.console import Listener, on_terminal, say, screen, state
from stages.numbers import duration, figure_name, number
from stages.reporting import first_process

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_TICKS = 1.0
SECONDS_BETWEEN_DRAWINGS = 0.1
QUIET_SECONDS = 2.0
"""Seconds without a message or progress after which a terminal or a notebook shows that work
continues.
"""


class Work:
    """Progress of some work, and its remaining time at the mean speed since the first report."""

    FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}{postfix}]"

    def __init__(self, done: int, total: int, unit: str, clock: Callable[[], float]) -> None:
        self.done = done
        self.total = total
        self.unit = unit
        self._figures: dict[str, float] = {}
        self._clock = clock
        self._first = done
        self._began = clock()
        self._heard = self._began
        self._left = 0.0

    def report(self, done: int, figures: dict[str, float]) -> None:
        self.done = done
        self._figures = figures
        self._heard = self._clock()
        num_done = done - self._first
        if num_done > 0:
            seconds_each = (self._heard - self._began) / num_done
            self._left = seconds_each * (self.total - done)

    def line(self) -> str:
        """`30 of 1,000 steps (3%), loss 4.25, 16:10 left`."""
        counted = (
            f"{self.done:,} of {self.total:,} {self.unit} ({self.done / max(self.total, 1):.0%})"
        )
        return ", ".join([counted, *self._words(), *(self._time_left() or self._silence())])

    def bar(self) -> str:
        """The progress as a bar for a terminal, as wide as it is, drawn by tqdm."""
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
        """`["1:05 left"]`, counting down between reports; empty if not known, or over."""
        seconds = self._left - (self._clock() - self._heard)
        return [f"{duration(seconds)} left"] if seconds > 0 else []

    def _silence(self) -> list[str]:
        """`["working, 95 s"]`: time since the last report, if that is longer than the expected
        total.
        """
        silent = int(self._clock() - self._heard)
        return [f"working, {silent} s"] if silent >= SECONDS_BETWEEN_LINES else []


class ConsoleReporter:
    """Messages of a stage on stderr, and its progress: as a bar on a terminal, else as a line every
    30 seconds.

    Inside `with` the bar counts seconds, and lines continue. Without progress a line says after a
    while that work continues. Among nested reporters the innermost one writes.
    """

    def __init__(
        self, command: str, clock: Callable[[], float] = time.monotonic, *, soon: bool = False
    ) -> None:
        """Args:
        soon: the first line comes after two seconds even without a terminal, for a person who
            watches a notebook; this also holds for nested reporters.
        """
        self.command = command
        outer = state.reporter
        self.soon: bool = soon or (isinstance(outer, ConsoleReporter) and outer.soon)
        self._clock = clock
        self._patience = QUIET_SECONDS if self.soon else SECONDS_BETWEEN_LINES
        self._in_place = on_terminal()
        self._speaks = first_process()
        self._lock = RLock()
        self._stopped = Event()
        self._before: tuple[TextIO | None, Listener | None] = (None, None)
        self._work: Work | None = None
        self._heard = self._last_line = clock()
        self._wait = self._patience
        self._shown = ""
        self._drawn = 0.0
        self._amid_line = False

    def __enter__(self) -> Self:
        self._before = state.screen, state.reporter
        self.hear()
        _make_room()
        state.screen = screen()
        state.reporter = self
        if self._speaks:
            Thread(target=self._run, name="ticks", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        with self._lock:
            self._draw("")
            state.screen, state.reporter = self._before
        _make_room()

    def _run(self) -> None:
        """Update the display while nothing is reported."""
        while not self._stopped.wait(SECONDS_BETWEEN_TICKS):
            try:
                self._tick()
            except (OSError, ValueError):  # the reader has gone away
                return

    def _tick(self) -> None:
        with self._lock:
            if state.reporter is self:
                self._write_line_if_due()
                self._show()

    def hear(self, *, amid_line: bool = False) -> None:
        """Called before a text is written; `amid_line`: on a terminal it does not end its line, so
        nothing is drawn.
        """
        with self._lock:
            self._draw("")
            self._amid_line = amid_line
            self._heard = self._clock()
            if self._work is None:
                self._last_line = self._heard
                self._wait = self._patience

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
            work = self._work
            now = self._clock()
            # A new total or unit, or a restarted count, is other work with its own speed.
            if work is None or (work.total, work.unit) != (total, unit) or done < work.done:
                work = self._work = Work(done, total, unit, self._clock)
                self._last_line = now
                self._wait = self._patience
                self._drawn = -math.inf
            work.report(done, figures)
            self._write_line_if_due()
            if now - self._drawn >= SECONDS_BETWEEN_DRAWINGS or done == total:
                self._show()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Context for writing something else on the terminal."""
        with self._lock:
            self.hear()
            yield
            if self._work is not None:
                self._show()

    def _write_line_if_due(self) -> None:
        """Write the line of the last report, or a sign of life; on a terminal there is a bar
        instead.
        """
        now = self._clock()
        heard = self._heard
        if not self._in_place and now - self._last_line >= self._wait:
            words = f"working, {int(now - heard)} s" if self._work is None else self._work.line()
            say(f"{self.command}: {words}")
            # A line of our own is no report: silence counts from the last report of the work.
            self._heard = heard
            self._last_line = now
            self._wait = SECONDS_BETWEEN_LINES

    def _show(self) -> None:
        """Draw the bar on a terminal; if there is no bar, after a while, the time without a report."""
        if self._in_place and not self._amid_line:
            quiet = self._clock() - self._heard
            waiting = f"{self.command}: working, {int(quiet)} s" if quiet >= QUIET_SECONDS else ""
            self._draw(self._work.bar() if self._work is not None else waiting)

    def _draw(self, line: str) -> None:
        """Replace the line on the terminal; an empty one erases it."""
        if line or self._shown:
            blanks = " " * (len(self._shown) - len(line))
            end = "" if line else "\r"
            print(f"\r{line}{blanks}{end}", end="", file=screen(), flush=True)
        self._shown = line
        self._drawn = self._clock()


def telling(command: str) -> AbstractContextManager[object]:
    """Context that shows that a command is at work; a command run by another counts as part of
    that.
    """
    return ConsoleReporter(command) if state.reporter is None else nullcontext()


@contextmanager
def not_working() -> Iterator[None]:
    """Context for waiting for something other than work: no sign of life is shown."""
    _make_room()
    before = state.reporter
    state.reporter = None
    try:
        yield
    finally:
        state.reporter = before
        _make_room()


def _make_room() -> None:
    """Erase the display of work under way for a moment."""
    if state.reporter is not None:
        state.reporter.hear()
