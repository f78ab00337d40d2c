"""Entry of the command `memlm`: until all is imported, a signal ends the process at once.

Libraries that are being imported would turn the exception of a signal into errors of their own. So
the handlers are there before anything else of memlm is imported.
"""

import signal

from memlm_cli.early_signals import OTHERS, leave_at_once


def main() -> int:
    """Run memlm with the arguments of the process and return the exit code."""
    signal.signal(signal.SIGTERM, leave_at_once)
    if signal.getsignal(signal.SIGINT) in OTHERS:
        signal.signal(signal.SIGINT, leave_at_once)

    from memlm_cli.app import main as run

    return run()
