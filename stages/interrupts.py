"""Handling of Ctrl-C and SIGTERM: an orderly end that saves progress first."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType
from typing import TypeVar

from stages.errors import causes

T = TypeVar("T")
SECONDS_TO_HEAR = 1.0


class Terminated(BaseException):
    """SIGTERM arrived. Like KeyboardInterrupt, it is not an `Exception`, so that no handler
    swallows it.
    """


class StopRequest:
    """Records whether a signal requested the end; the caller chooses where `check` raises it."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise Terminated


class Interruption:
    """Signal handlers that raise, and remember the signal: a library may raise another error then."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt` for SIGINT, and `Terminated` for SIGTERM."""
        self.signal = signum
        # An object whose construction the signal cuts short, such as an event loop of Zarr, may
        # fail again where it is collected. That would stand behind the message of the end.
        sys.unraisablehook = lambda _: None
        raise KeyboardInterrupt if signum == signal.SIGINT else Terminated

    def cause_of(self, error: BaseException) -> BaseException:
        """The interruption, if an error came after a signal; otherwise the error.

        It may be no `Exception`: pydantic's core panics if a signal meets it.
        """
        if self.signal is None or isinstance(error, SystemExit):
            return error
        for link in causes(error):
            if isinstance(link, KeyboardInterrupt | Terminated):
                return link
        return KeyboardInterrupt() if self.signal == signal.SIGINT else Terminated()


@contextmanager
def deferred_signals() -> Iterator[StopRequest]:
    """Defer SIGINT and SIGTERM inside the block; a second signal is delivered at once.

    For work that must end between two steps, such as training: poll the yielded request there. A
    signal after the last poll is delivered after the block.
    """
    request = StopRequest()

    def note(signum: int, frame: FrameType | None) -> None:
        # The second signal: a user who asks twice does not want to wait for the end of a step.
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
    """Call a slow function of another library in its own thread, so that signals are handled
    meanwhile.

    Args:
        work: makes the call, and must end early once the event is set; its result is then dropped.
    Raises: the error of `work`; the exception of a signal after the call has ended; that of a
    second signal at once.
    """
    from concurrent.futures import Future, wait  # imported here, because `--help` does not need it

    stop = Event()
    result = Future[T]()

    def run() -> None:
        try:
            result.set_result(work(stop))
        except BaseException as error:
            result.set_exception(error)

    thread = Thread(target=run, name="stoppable", daemon=True)
    try:
        thread.start()
        while not wait(
            [result], SECONDS_TO_HEAR
        ).done:  # a task cancelled by Ray notices it only between two steps
            pass
        return result.result()
    except BaseException:
        stop.set()
        if thread.ident is not None:
            wait([result])
        raise
