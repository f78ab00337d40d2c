"""One maker at a time: a lock that the system frees when its holder dies, and a note of who makes it, or did last."""

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from stages.artifacts.durable import make_folder, write_atomically
from stages.errors import BusyError
from stages.reporting import Reporter


@contextmanager
def held(lock_file: Path, what: str, *, wait: bool, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of an artifact that is being made.

    Args:
        lock_file: where the lock lies; its folder is made.
        what: reference of the artifact, for messages.
        wait: whether to wait for another holder.
        reporter: hears for whom we wait.
    Raises: BusyError if another process holds the lock and `wait` is false.
    """
    from filelock import FileLock, Timeout

    make_folder(lock_file.parent)
    # The system frees it however its holder ends, so no lock is ever left behind.
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = _holder(lock_file)
        if not wait:
            raise BusyError(
                f"{what} is being made by {holder}; run again when that ends, or without --no-wait."
            ) from None
        reporter.info(f"waiting for {holder}, which is making {what}")
        lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


def is_held(lock_file: Path) -> bool:
    """Whether a process holds the lock at this moment, or may: where nothing can be written, nobody can tell."""
    if not lock_file.exists():
        return False
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        return True
    lock.release()
    return False


def _holder(lock_file: Path) -> str:
    """Who holds a lock, as the draft of what is made says."""
    tells = Attempt.read(lock_file.with_name(f"{lock_file.stem}-partial"))
    return "another process" if tells is None else f"process {tells.pid} on {tells.host} (memlm {tells.command})"


ATTEMPT = "attempt.json"


@dataclass(frozen=True)
class Attempt:
    """A process that took up the work of a draft."""

    command: str
    """Command line as it was typed, without `memlm`."""
    began: str
    """UTC, ISO 8601, to the second."""
    pid: int
    host: str

    @classmethod
    def of_this_process(cls) -> "Attempt":
        began = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(shlex.join(sys.argv[1:]), began, os.getpid(), socket.gethostname())

    def write(self, draft: Path) -> None:
        """Note it in a draft's folder."""
        write_atomically(draft / ATTEMPT, json.dumps(asdict(self)))

    @classmethod
    def read(cls, draft: Path) -> "Attempt | None":
        """The last one noted in a draft's folder; None if there is none that can be read."""
        try:
            return _ATTEMPT.validate_json((draft / ATTEMPT).read_bytes(), strict=True)
        except (OSError, ValueError):
            return None


_ATTEMPT = TypeAdapter(Attempt)
