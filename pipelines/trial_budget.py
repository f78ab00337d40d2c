"""Rules of `memlm try`: how much is read, trained and scored, by minutes and measured speed.

Work is counted in training tokens, see `trial_costs.py`.

1. Text: all of it, or as much as 70 % of the work reads four times.
2. Shares: valid and test are a tenth of the text each, or what the other 30 % can score.
3. Passes: as many as the work that is left allows, up to those that are worth while.
4. A second model, trained with memory: where both make three quarters of those passes over all of
   the text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from pipelines.trial_costs import (
    MOST_COMPARED,
    STAGE,
    STAGES,
    STAGES_OF_SECOND,
    STORED,
    TRIME,
    TRIME_SCORED,
    Machine,
    scoring_work,
)
from stages.errors import DataError, UsageError
from stages.metrics import NEARLY
from stages.numbers import number, size
from stages.text.survey import bpe_vocabulary
from stages.training.config import TrainConfig
from stages.training.resolve import worthwhile_passes

TokenBytes = Callable[[int], float]
"""Bytes per token of a text, by the number of types of its vocabulary."""
Shares = tuple[float, float]
"""Shares of a text, for valid and for test."""
FEWEST_BYTES = 50_000
"""With less text the test split is a page or two, and every figure is chance."""
LEARNING = 0.7
"""Share of the work for training; the rest is for tuning on valid and scoring test."""
GOOD_PASSES = 4.0
FEWEST_PASSES = 1.0
"""Passes to make before more text is read, and the minimum for any trial.

More passes over less text are worse: with equal updates, four over twice the text left 10 to 12 %
fewer bits a character than six or seven (tinyshakespeare, a novel; one seed each).
"""
SECOND = 0.75
"""Share of the worthwhile passes that both models make, where a second one is trained."""
LARGEST_SHARE = 0.1
FEWEST_SCORED = 1000
"""Largest share of a text, and minimum tokens, of each of valid and test."""


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
    work: float
    """Training tokens that all stages take, with each seed."""

    @property
    def poor(self) -> bool:
        """Whether the model is trained so little that the user must be warned."""
        return self.passes < NEARLY * min(self.worthwhile, GOOD_PASSES)


def require_enough(total: int, name: str) -> None:
    """Raises: DataError for a text with too few bytes to try anything; `name`: how the message
    calls it.
    """
    if total < FEWEST_BYTES:
        raise DataError(
            f"{name} has {total:,} bytes, too little to learn from and to test on: give at least {FEWEST_BYTES:,} of "
            "text, a few chapters of a book."
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
        """The budget of a text of `total` bytes, or of as much of it as there is time for.

        Raises: UsageError for too little time.
        """
        part = self.text_bytes(total)
        budget = self.budget(part, self.machine.work, whole=part == total)
        if budget.passes < FEWEST_PASSES:
            raise self._too_short()
        return budget

    def text_bytes(self, total: int) -> int:
        """Rule 1: bytes to read of a text of `total` bytes."""
        types = bpe_vocabulary(total)
        work = max(0.0, self.machine.work - STAGES * STAGE)
        # A text that is long for the model is read once: more of it is better than a second pass.
        is_long = worthwhile_passes(round(LEARNING * work), self._weights(types)) <= 1
        learned = STORED + (1.0 if is_long else GOOD_PASSES)
        if self.shares is None:
            tokens = LEARNING * work / learned
        else:
            scored = sum(self.shares)
            a_scored = scoring_work(MOST_COMPARED)
            tokens = work / ((1 - scored) * learned + scored * a_scored)
        # A part has fewer types than the whole text, and so shorter tokens.
        types = bpe_vocabulary(min(total, tokens * self.token_bytes(types)))
        # Messages and file names give thousands of bytes.
        part = int(tokens * self.token_bytes(types)) // 1000 * 1000
        return min(total, max(part, FEWEST_BYTES))

    def budget(self, text_bytes: int, work: float, *, whole: bool = True) -> Budget:
        """Rules 2 to 4: spend the work of one seed on `text_bytes` of text.

        Args:
            whole: whether that is all of the text.
        """
        every = text_bytes / self.token_bytes(bpe_vocabulary(text_bytes))
        a_scored = scoring_work(every)
        affordable = (1 - LEARNING) * work / a_scored
        valid, test = self.shares or _equal_shares(affordable / 2, every)

        train_bytes = (1 - valid - test) * text_bytes
        # Train alone may have fewer types than the whole text, and so more tokens.
        types = bpe_vocabulary(train_bytes)
        token_bytes = self.token_bytes(types)
        tokens = round(train_bytes / token_bytes)
        scored = (valid + test) * text_bytes / token_bytes
        weights = self._weights(types)
        worthwhile = worthwhile_passes(tokens, weights)

        fixed = STAGES * STAGE + STORED * tokens + a_scored * scored
        a_pass = float(tokens)
        fixed_of_both = fixed + STAGES_OF_SECOND * STAGE + TRIME_SCORED * scored
        pass_of_both = (1 + TRIME) * tokens
        trime = whole and work >= fixed_of_both + SECOND * worthwhile * pass_of_both
        if trime:
            fixed = fixed_of_both
            a_pass = pass_of_both
        passes = max(0.0, min(worthwhile, (work - fixed) / a_pass))
        work = fixed + passes * a_pass
        return Budget(
            text_bytes, valid, test, tokens, types, weights, worthwhile, passes, trime, work
        )

    def minutes_for(self, passes: float) -> int:
        """Whole `--minutes`, more than there are, for `passes` over the smallest part of a text."""
        more = int(self.machine.minutes) + 1
        return max(more, self.machine.minutes_for(self._least_work(passes)))

    def least_speed(self) -> float:
        """Training speed, in tokens a second, that the smallest part of a text needs in this time."""
        work = self._least_work(FEWEST_PASSES) * self.machine.seeds
        return work / self.machine.seconds if self.machine.seconds else inf

    def _least_work(self, passes: float) -> float:
        """Work of one model that makes `passes` over the smallest part of a text."""
        ample = self.budget(FEWEST_BYTES, inf, whole=False)
        return ample.work - (ample.passes - passes) * ample.tokens

    def _too_short(self) -> UsageError:
        minutes = number(self.machine.minutes)
        speed = number(round(self.machine.speed))
        fewest, good = (self.minutes_for(passes) for passes in (FEWEST_PASSES, GOOD_PASSES))
        return UsageError(
            f"--minutes {minutes} is too short to try anything at {speed} "
            f"tokens a second, as fast as this machine trains just now: give --minutes {good} to "
            f"read {size(FEWEST_BYTES)} {number(GOOD_PASSES)} times ({fewest} to read it once), "
            "or wait until it is less busy."
        )

    def _weights(self, types: int) -> int:
        """Weights of the model with a vocabulary of `types`."""
        # It imports torch, which other commands do without.
        from stages.models.language_model import parameter_count

        return parameter_count(self.training.model.sized(types, self.training.segment_length))


def _equal_shares(affordable: float, tokens: float) -> Shares:
    """Shares of a text for valid and test, by the tokens of each that there is time to score.

    Shares are typed, so they have two digits.
    """
    share = min(LARGEST_SHARE, max(affordable, FEWEST_SCORED) / tokens)
    share = float(f"{share:.2g}")
    return share, share
