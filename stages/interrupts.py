"""Ctrl-C and SIGTERM: an orderly end that saves progress first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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

    For work that must end between two steps, such as training: poll the yielded request there.
    """
    request = StopRequest()

    def note(signum: int, frame: FrameType | None) -> None:
        if request:
            request.check()
        request.signal = signum

    previous = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
