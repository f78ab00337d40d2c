"""Who works on a draft, or did last: for people who find its folder."""

import json
import os
import shlex
import socket
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from stages.artifacts.durable import write_atomically

ATTEMPT = "attempt.json"


@dataclass(frozen=True)
class Attempt:
    """A process that took up the work of a draft."""

    command: str
    """As it was typed, without `memlm`."""
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
