"""Times that `plan --calibrate` measured, kept in the store for later plans: by machine, command and shape of the work.

No artifact depends on them; the folder may be deleted.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pipelines.calibration import Taken
from stages.artifacts.cost import Effort
from stages.artifacts.durable import write_atomically
from stages.machine import processor_name, usable_cores

RATES = ".rates"
"""Folder of a store."""


@dataclass(frozen=True)
class Machine:
    """What computed; times are those of no other."""

    device: str
    processor: str
    cores: int

    @classmethod
    def of(cls, device: str) -> "Machine":
        """This one, where `device` computes."""
        return cls(device, processor_name(), usable_cores())

    def __str__(self) -> str:
        own = f"{self.cores} core{'s'[: self.cores != 1]} of {self.processor}"
        return own if self.device == "cpu" else f"{self.device} beside {own}"


@dataclass(frozen=True)
class Rate:
    """Seconds that some work takes, by a part of it."""

    command: str
    machine: Machine
    kin: str
    """What must be equal for two times to be compared, as JSON."""
    amount: int
    unit: str
    scale: int
    seconds: float
    measured: str
    """When: YYYY-MM-DD, UTC."""
    stand_ins: bool = False
    """Whether it read a part of the text, or made-up numbers, in place of what was not made yet."""

    @property
    def told(self) -> str:
        """When, of what, and where it was measured."""
        made_up = ", with stand-ins for what was not made yet" if self.stand_ins else ""
        return f"{self.measured}, for {self.amount:,} {self.unit}, on {self.machine}{made_up}"

    @property
    def effort(self) -> Effort:
        return Effort(self.amount, self.unit, {}, self.scale)


_RATE = TypeAdapter(Rate)


def keep(root: Path, command: str, device: str, effort: Effort, taken: Taken) -> None:
    """Note that some work was measured to take so long; the latest counts. A store that cannot be written stays so."""
    today = datetime.now(UTC).date().isoformat()
    shape, machine = _spelled(effort.kin), Machine.of(device)
    rate = Rate(
        command, machine, shape, effort.amount, effort.unit, effort.scale, taken.seconds, today, taken.stand_ins
    )
    with suppress(OSError):
        file = _file(root, command, machine, shape)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(asdict(rate), indent=1) + "\n")


def find(root: Path, command: str, device: str, effort: Effort) -> Rate | None:
    """What was measured here of work of the same shape; a file that says something else counts for nothing."""
    shape, machine = _spelled(effort.kin), Machine.of(device)
    with suppress(OSError, ValueError):
        rate = _RATE.validate_json(_file(root, command, machine, shape).read_bytes(), strict=True)
        if (rate.command, rate.machine, rate.kin) == (command, machine, shape) and rate.amount > 0 <= rate.seconds:
            return rate
    return None


def _file(root: Path, command: str, machine: Machine, shape: str) -> Path:
    name = blake2b(json.dumps([command, asdict(machine), shape]).encode(), digest_size=6).hexdigest()
    return root / RATES / f"{name}.json"


def _spelled(kin: Mapping[str, Any]) -> str:
    return json.dumps(kin, sort_keys=True, default=str)
