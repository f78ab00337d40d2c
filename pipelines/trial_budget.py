"""Amount of text, and passes over it, for training models and trying memories in a given number of
minutes.

Costs are counted in *training tokens*: one is the work done in the time of training on one token.
    So a single measurement of speed gives the time of every stage, and minutes become an amount of
    work.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from stages.errors import DataError, UsageError
from stages.metrics import MOST_PASSES, NEARLY
from stages.numbers import number, size
from stages.text.survey import bpe_vocabulary
from stages.training.config import TrainConfig
from stages.training.resolve import worthwhile_passes

FEWEST_BYTES = 50_000
"""With less text the test split is a page or two, and every figure is chance."""
SHORT_BOOK = 300_000
"""Bytes of a part of a text from which on two models are better than one model and more text."""
TokenBytes = Callable[[int], float]
"""Bytes per token of a text, by the number of types of its vocabulary."""
Shares = tuple[float, float]
"""Shares of a text, for valid and for test."""
LARGEST_SHARE, LARGEST_OF_PART, FEWEST_SCORED = 0.1, 0.25, 1000
"""Largest share of a whole text for each of valid and test; of a part of a text; and minimum tokens
of each.
"""
GOOD_PASSES, FEWEST_PASSES = 4.0, 1.0
"""Useful passes to make before a longer part of a text is taken, and the minimum for any trial.

More passes over less text are worse: with equal updates, four over twice the text left 10 to 12 %
fewer bits a character than six or seven (tinyshakespeare, a novel; one seed each).
"""
GOOD_FOR_TWO = float(MOST_PASSES)
"""Useful passes of each model before a second one is trained: after fewer, a report calls both
undertrained.
"""

ENDLESS = 1e6
"""Minutes after which more time gains nothing."""
USED = 0.92
"""Share of the minutes that is planned, since a machine may slow down."""
STAGE = 30_000
"""Work of starting and ending a stage, whatever the text: loading libraries and models, drawing
figures.
"""
SCORED_SHARE = 0.3
"""Share of all work for tuning on valid and scoring test."""
SCORED, SCORED_ROW, MOST_COMPARED = 6.0, 5e-5, 400_000
"""Work of reading a token with cache and kNN-LM; of each compared row; rows up to which all are
compared.
"""
STORED = 0.4
"""Work of making and storing the key of a token."""
TRIME, TRIME_SCORED = 1.3, 3.0
"""Work of training on a token with TRIME; of reading one with it."""


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
    def work(self) -> float:
        """Training tokens for each seed that fit into the time."""
        return max(0.0, USED * 60 * self.minutes - self.spent) * self.speed / self.seeds


@dataclass(frozen=True)
class Budget:
    """Plan for a given amount of text: splits, passes and work."""

    bytes: int
    valid: float
    test: float
    """Shares of the text."""
    tokens: int
    """Tokens of train, about."""
    types: int
    weights: int
    worthwhile: float
    """Passes over train that the model learns from."""
    passes: float
    """Passes over train that there is time for."""
    trime: bool
    """Whether a second model is trained, with memory."""
    stages: Mapping[str, float]
    """Training tokens that each stage of the recipe takes, with each seed."""

    @property
    def work(self) -> float:
        return sum(self.stages.values())

    @property
    def good(self) -> bool:
        """Whether the models are trained well enough for a memory's gain to mean something."""
        return self.passes >= min(self.worthwhile, GOOD_FOR_TWO if self.trime else GOOD_PASSES)

    @property
    def poor(self) -> bool:
        """Whether they are trained so little that the user must be warned."""
        return self.passes < NEARLY * min(self.worthwhile, GOOD_PASSES)

    def seconds(self, machine: Machine) -> float:
        return machine.spent + self.work * machine.seeds / machine.speed


def require_enough(total: int, name: str) -> None:
    """Raises: DataError for a text with too few bytes to try anything; `name`: how the message
    calls it.
    """
    if total < FEWEST_BYTES:
        raise DataError(
            f"{name} has {total:,} bytes, too little to learn from and to test on: give at least {FEWEST_BYTES:,} of "
            "text, a few chapters of a book."
        )


def require_time(machine: Machine) -> None:
    """Raises: UsageError if the minutes are over before the machine is timed."""
    if machine.spent >= USED * 60 * machine.minutes:
        raise UsageError(
            f"--minutes {number(machine.minutes)} are over before this machine is timed: "
            f"give --minutes {ceil(10 * machine.minutes)} or more."
        )


@dataclass(frozen=True)
class Planner:
    """Budgets of one text on one machine."""

    token_bytes: TokenBytes
    machine: Machine
    training: TrainConfig
    """How models are trained, at the speed of the machine."""
    shares: Shares | None = None
    """Shares of the text, for valid and test; None: as much as there is time to score."""

    def best(self, total: int) -> Budget:
        """The best plan: all text with two models, or one; else the most that is learnt well; else
        the least.

        Args:
            total: bytes of the text, see `require_enough`.
        Raises: UsageError for too little time.
        """
        least = self._least()
        if least.passes < FEWEST_PASSES:
            raise self._too_short()
        # The whole text matters more than a second model, and a well trained model more than the
        # whole text.
        for trime, fewest in (
            (True, total),
            (False, total),
            (True, SHORT_BOOK),
            (False, FEWEST_BYTES),
        ):
            largest = self._largest(total, fewest, trime)
            if largest is not None:
                return largest
        return least

    def _too_short(self) -> UsageError:
        minutes, speed = number(self.machine.minutes), number(round(self.machine.speed))
        fewest, good = (self.minutes_for(passes) for passes in (FEWEST_PASSES, GOOD_PASSES))
        return UsageError(
            f"--minutes {minutes} is too short to try anything at {speed} "
            f"tokens a second, as fast as this machine trains just now: give --minutes {good} to "
            f"read {size(FEWEST_BYTES)} {number(GOOD_PASSES)} times ({fewest} to read it once), "
            "or wait until it is less busy."
        )

    def minutes_for(self, passes: float) -> int:
        """Whole minutes, more than there are, in which one model makes `passes` over the smallest
        part of a text.
        """
        machine = self.machine
        needed = (machine.spent + self._least_work(passes) / machine.speed) / (60 * USED)
        return int(max(needed, machine.minutes)) + 1

    def least_speed(self) -> float:
        """Training speed, in tokens a second, that the smallest part of a text needs in this time."""
        seconds = replace(self.machine, speed=1.0, seeds=1).work
        return self._least_work(FEWEST_PASSES) / seconds if seconds else inf

    def _least_work(self, passes: float) -> float:
        """Training tokens of one model for each seed that makes `passes` over the smallest part of
        a text.
        """
        least = replace(self, machine=Machine(1.0, ENDLESS))._least()
        return (least.work - max(0.0, least.passes - passes) * least.tokens) * self.machine.seeds

    def budget(self, text_bytes: int, trime: bool, *, whole: bool = True) -> Budget:
        """Plan the time for `text_bytes` of text; `whole`: that is all of it, not a part."""
        every, work = text_bytes / self.token_bytes(bpe_vocabulary(text_bytes)), self.machine.work
        plain_scored = SCORED + SCORED_ROW * min(every, MOST_COMPARED)
        # Half of the scored text is valid, on which memories are tuned.
        affordable = SCORED_SHARE * work / (2 * (plain_scored + (TRIME_SCORED if trime else 0)))
        largest = LARGEST_SHARE if whole else LARGEST_OF_PART
        share = _two_digits(min(largest, max(affordable, FEWEST_SCORED) / every))
        valid, test = self.shares or (share, share)
        types = bpe_vocabulary((1 - valid - test) * text_bytes)
        every = text_bytes / self.token_bytes(
            types
        )  # train alone has fewer types, which may mean more tokens
        tokens, read = round((1 - valid - test) * every), (valid + test) * every
        stages = {"tokens": 0.0, "model": 0.0, "datastore": STORED * tokens, "index": 0.0}
        stages["report"] = plain_scored * read
        a_pass = {"model": float(tokens)}
        if trime:
            stages |= {"trime": 0.0, "trime_report": TRIME_SCORED * read}
            a_pass["trime"] = TRIME * tokens
        stages = {stage: STAGE + needed for stage, needed in stages.items()}
        from stages.models.language_model import (
            parameter_count,
        )  # torch, which other commands do without

        learnt = parameter_count(self.training.model.sized(types, self.training.segment_length))
        worthwhile = worthwhile_passes(tokens, learnt)
        passes = max(0.0, min(worthwhile, (work - sum(stages.values())) / sum(a_pass.values())))
        stages |= {stage: stages[stage] + passes * needed for stage, needed in a_pass.items()}
        return Budget(
            text_bytes, valid, test, tokens, types, learnt, worthwhile, passes, trime, stages
        )

    def _largest(self, total: int, fewest: int, trime: bool) -> Budget | None:
        """Largest part of a text on which models are trained well, in steps of a tenth; None if
        less than `fewest`.
        """
        part = total
        while part >= min(fewest, total):
            found = self.budget(part, trime, whole=part == total)
            if found.good:
                return found
            part = 900 * part // 1_000_000 * 1000  # messages and file names give thousands of bytes
        return None

    def _least(self) -> Budget:
        """Plan for the smallest part of a text. As little as possible is scored, which leaves time
        for training.
        """
        shares = self.shares or self.fewest_shares(FEWEST_BYTES)
        return replace(self, shares=shares).budget(FEWEST_BYTES, False)

    def fewest_shares(self, text_bytes: int) -> Shares:
        """Smallest shares of a text for valid and test."""
        scored = FEWEST_SCORED * self.token_bytes(bpe_vocabulary(text_bytes))
        share = _two_digits(min(LARGEST_OF_PART, scored / text_bytes))
        return share, share


def _two_digits(share: float) -> float:
    """Shares are typed."""
    return float(f"{share:.2g}")
