"""Work of the stages of `memlm try`, and the work that a machine does in some minutes.

Work is counted in *training tokens*: one is the time of training on one token. So one measured
speed gives the time of every stage.
"""

from dataclasses import dataclass
from math import ceil

from stages.errors import UsageError
from stages.numbers import number

USED = 0.92
"""Share of the minutes that is planned, since a machine may slow down."""
STAGE = 30_000
STAGES = 5
STAGES_OF_SECOND = 2
"""Work of starting and ending a stage, whatever the text; and number of stages with one model, and
of those that a second one adds.
"""
SCORED = 12.0
SCORED_ROW = 5e-5
MOST_COMPARED = 400_000
"""Work of reading a token with cache and kNN-LM; of each compared row; rows up to which all are
compared.
"""
STORED = 0.4
"""Work of making and storing the key of a token."""
TRIME = 1.3
TRIME_SCORED = 3.0
"""Work of training on a token with TRIME; of reading one with it."""


def scoring_work(rows: float) -> float:
    """Work of tuning on a token, or of scoring it, with cache and kNN-LM over `rows` of a datastore."""
    return SCORED + SCORED_ROW * min(rows, MOST_COMPARED)


@dataclass(frozen=True)
class Machine:
    """Speed of a machine, and the time it has: all that a plan needs of it."""

    speed: float
    """Tokens a second in training."""
    minutes: float
    seeds: int = 1
    """Number of seeds; everything is done with each."""
    spent: float = 0.0
    """Seconds that are over already, in which the text was read and the machine timed."""

    @property
    def seconds(self) -> float:
        """Seconds that are left to plan."""
        return max(0.0, USED * 60 * self.minutes - self.spent)

    @property
    def work(self) -> float:
        """Training tokens for each seed that fit into the time."""
        return self.seconds * self.speed / self.seeds

    def seconds_for(self, work: float) -> float:
        """Seconds from the start until each seed has done `work`."""
        return self.spent + work * self.seeds / self.speed

    def minutes_for(self, work: float) -> int:
        """Whole `--minutes` in which each seed can do `work`."""
        return ceil(self.seconds_for(work) / (60 * USED))


def require_time(machine: Machine) -> None:
    """Check that minutes are left when the machine is timed. Raises: UsageError."""
    if not machine.seconds:
        raise UsageError(
            f"--minutes {number(machine.minutes)} are over before this machine is timed: "
            f"give --minutes {ceil(10 * machine.minutes)} or more."
        )
