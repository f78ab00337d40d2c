"""Entry of the command `memlm`: until all is imported, a signal ends the process at once.

It imports nothing of memlm outside functions. Libraries that are being imported would turn the
exception of a signal into errors of their own.
"""

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


def main() -> int:
    """Run memlm with the arguments of the process and return the exit code."""
    signal.signal(signal.SIGTERM, leave_at_once)
    if signal.getsignal(signal.SIGINT) in OTHERS:
        signal.signal(signal.SIGINT, leave_at_once)

    from memlm_cli.app import main as run

    return run()
