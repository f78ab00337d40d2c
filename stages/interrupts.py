"""Ctrl-C and SIGTERM: an orderly end that saves progress first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
SECONDS_TO_HEAR = 1.0


class Terminated(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt, it is no Exception, so that nothing swallows it."""


class StopRequest:
    """Whether a signal asked for an end; `check` raises it at a place of the caller's choosing."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise Terminated


def raise_terminated(signum: int, frame: FrameType | None) -> None:
    """Signal handler that turns SIGTERM into `Terminated`."""
    raise Terminated


@contextmanager
def deferred_signals() -> Iterator[StopRequest]:
    """Hold back SIGINT and SIGTERM inside the block; a second signal is delivered at once.

    For work that must end between two steps, such as training: poll the yielded request there. A signal that came after
    the last poll is delivered behind the block.
    """
    request = StopRequest()

    def note(signum: int, frame: FrameType | None) -> None:
        # The second one: whoever asks twice will not wait for a step to end.
        if request:
            request.check()
        request.signal = signum

    previous = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    request.check()


def stoppable(work: Callable[[Event], T]) -> T:
    """Call a function of another library that takes long. It runs in a thread of its own, since a signal is heard only
    by the first thread, and there only between two steps of Python.

    Args:
        work: makes the call, and sees to it that it ends early once the event is set; what it then returns is dropped.
    Raises: what `work` raises; the exception of a signal, when the call has ended; that of a second one at once.
    """
    from concurrent.futures import Future, wait  # which a command that is only looked up does without

    stop, result = Event(), Future[T]()

    def run() -> None:
        try:
            result.set_result(work(stop))
        except BaseException as error:
            result.set_exception(error)

    thread = Thread(target=run, name="stoppable", daemon=True)
    try:
        thread.start()
        while not wait([result], SECONDS_TO_HEAR).done:  # what Ray cancels hears of it between two steps alone
            pass
        return result.result()
    except BaseException:
        stop.set()
        if thread.ident is not None:
            wait([result])
        raise
