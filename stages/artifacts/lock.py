"""One process at a time makes an artifact: a lock that the system frees when its holder dies, and
the last attempt.
"""

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from stages.artifacts.durable import make_folder, write_atomically
from stages.errors import BusyError
from stages.reporting import Reporter


@contextmanager
def hold_lock(lock_file: Path, what: str, *, wait: bool, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of an artifact that is being made.

    Args:
        lock_file: file of the lock; its folder is made.
        what: reference of the artifact, for messages.
        wait: whether to wait for another holder.
        reporter: receives a message about the holder while waiting.
    Raises: BusyError if another process holds the lock and `wait` is false.
    """
    from filelock import FileLock, Timeout

    make_folder(lock_file.parent)
    _remove_link(lock_file)
    # The system frees the lock even if its holder is killed, so no lock is ever left behind.
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        last = Attempt.read(lock_file.with_name(f"{lock_file.stem}-partial"))
        holder = (
            f"process {last.pid} on {last.host} (memlm {last.command})"
            if last
            else "another process"
        )
        if not wait:
            raise BusyError(
                f"{what} is being made by {holder}; run again when that ends, or without --no-wait."
            ) from None
        reporter.info(f"waiting for {holder}, which is making {what}")
        lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        # Only a holder removes the file, and before it frees the lock. Who waits for the removed
        # file gets its lock, sees that it has no name any more, and begins anew: filelock does so.
        lock_file.unlink(missing_ok=True)
        lock.release()


def _remove_link(lock_file: Path) -> None:
    """Remove a link at the place of a lock, which filelock refuses to follow."""
    if lock_file.is_symlink():
        lock_file.unlink(missing_ok=True)


def is_held(lock_file: Path) -> bool:
    """Whether a process holds the lock now; True, too, if the lock file cannot be opened to find
    out.
    """
    # A link is no lock.
    if lock_file.is_symlink() or not lock_file.exists():
        return False
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        return True
    lock_file.unlink(missing_ok=True)
    lock.release()
    return False


ATTEMPT = "attempt.json"


class Attempt(BaseModel):
    """A process that began or resumed the work of a draft."""

    model_config = ConfigDict(frozen=True, strict=True)

    command: str
    """Command line as it was typed, without `memlm`."""
    began: str
    """UTC, ISO 8601, to the second."""
    pid: int
    host: str

    @classmethod
    def of_this_process(cls) -> "Attempt":
        began = datetime.now(UTC).isoformat(timespec="seconds")
        command = shlex.join(sys.argv[1:])
        return cls(command=command, began=began, pid=os.getpid(), host=socket.gethostname())

    def write(self, draft: Path) -> None:
        """Record the attempt in a draft's folder."""
        write_atomically(draft / ATTEMPT, json.dumps(self.model_dump()))

    @classmethod
    def read(cls, draft: Path) -> "Attempt | None":
        """The last attempt that was recorded in a draft's folder; None if there is no readable
        record.
        """
        try:
            return cls.model_validate_json((draft / ATTEMPT).read_bytes())
        except (OSError, ValueError):
            return None
