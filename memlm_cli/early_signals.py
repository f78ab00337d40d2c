"""Signals that come before a command has begun: they end the process at once."""

import os
import signal
import sys
from types import FrameType

MESSAGES = {signal.SIGINT: b"memlm: interrupted.\n", signal.SIGTERM: b"memlm: terminated.\n"}
OTHERS = (signal.SIG_IGN, signal.default_int_handler)
"""Handlers of SIGINT that memlm replaces; others are somebody else's.

A shell without job control starts `memlm … &` with SIGINT ignored; memlm handles it all the same.
"""


def leave_at_once(signum: int, frame: FrameType | None) -> None:
    """Signal handler that ends the process with 128 plus the signal. Nothing has begun yet."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, MESSAGES[signal.Signals(signum)])
    os._exit(128 + signum)
