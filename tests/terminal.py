"""Programs on a terminal of their own, as a person has them in front."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

PATIENCE = 60.0


class Spawned:
    """A program whose standard streams are a terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self._process, self._terminal = process, terminal
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> None:
        """Wait until something is shown. Raises: AssertionError if the program ends, or nothing
        like it comes.
        """
        limit = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < limit and self._read(), self.shown

    def ended(self) -> int:
        """Its exit code, after all that it shows."""
        while self._read():
            pass
        os.close(self._terminal)
        return self._process.wait()

    def end(self) -> None:
        self._process.kill()
        self.ended()

    def _read(self) -> bool:
        """Take in what is shown next; whether there may be more."""
        ready, _, _ = select.select([self._terminal], [], [], 1.0)
        if not ready:
            return True
        try:
            part = os.read(self._terminal, 4096)
        except OSError:  # as Linux says that nobody writes any more
            return False
        self.shown += part.decode("utf-8", "replace")
        return bool(part)


TAKE = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
"""Makes standard input the terminal of a session, and becomes the program."""


def spawned(words: Sequence[str], environment: Mapping[str, str]) -> Spawned:
    """Start a program on a terminal."""
    terminal, own = os.openpty()
    streams = {
        "stdin": own,
        "stdout": own,
        "stderr": own,
        "start_new_session": True,
        "env": dict(environment),
    }
    process = subprocess.Popen([sys.executable, "-c", TAKE, *words], **streams)  # type: ignore[call-overload]
    os.close(own)
    return Spawned(process, terminal)
