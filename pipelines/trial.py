"""A trial of memory on a text: its split, its model, and the length of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from pipelines.settings import merged
from pipelines.trial_budget import GOOD_PASSES, Budget, Planner, Shares
from pipelines.trial_costs import Machine
from stages.errors import DataError, UsageError
from stages.text.config import TokenizeConfig
from stages.text.sample import SampleFacts
from stages.text.survey import DocumentSizes, Survey
from stages.training.config import TrainConfig
from stages.training.presets import load_preset
from stages.validation import validated

PRESET = "tiny-transformer-xl"
CHANGES: Mapping[str, Any] = {"batch_tokens": 512, "segment_length": 32}
"""Changes to the preset: small batches of short segments, which learn a small text better.

Perplexity without memory in equal processor time (32 s on one core, one seed), on a novel and on
builtin:pydocs:

- Transformer-XL, segments of 32 tokens: 51.0, 38.3; of 64: 54.4, 45.1
- Transformer, segments of 32 tokens: 54.4, 45.0; of 128: 59.4, 51.3
"""
RULES = 14
"""Version of the planning rules: raised when the same text and minutes must give another recipe."""
LARGEST_DOCUMENT = 3.0
"""Largest size of a document, as a multiple of the test split: with a larger one shares could not
be met.
"""
FEWEST_DOCUMENTS = 30
"""Minimum number of documents in a text to cut into train, valid and test."""


@dataclass(frozen=True)
class Trial:
    """The plan for a text."""

    budget: Budget
    machine: Machine
    total: int
    """Bytes of the whole text; the budget may use a part."""
    documents: DocumentSizes
    steps: int
    everything: Budget
    """Budget without a limit of time: the whole text, all useful passes of both models, and the
    largest test split.
    """
    good: int | None = None
    """Minutes needed to train a model well, if there is too little time."""
    part: SampleFacts | None = None
    """The records that are read; None: the text as it is."""
    is_whole: bool = True
    """Whether all of the text is read."""
    column: str | None = None
    """Column or field that holds the text; None: the usual one."""

    @property
    def bytes(self) -> int:
        """Bytes that are read."""
        return self.budget.bytes if self.part is None else self.part.bytes

    @property
    def scores_less(self) -> bool:
        """Whether a smaller share is scored than with more time."""
        return self.budget.test < self.everything.test


def training_settings() -> TrainConfig:
    """Settings of training, except for the number of steps."""
    return TrainConfig.model_validate(merged(load_preset(PRESET), CHANGES))


def longest_context() -> int:
    """Tokens that a prediction of the plain model depends on.

    Each block reads one segment back, so several blocks together reach further.
    """
    training = training_settings()
    blocks: int = training.model_dump()["model"]["layers"]
    return (blocks + 1) * training.segment_length


def plan_trial(
    survey: Survey,
    total: int,
    first: Budget,
    planner: Planner,
    part: SampleFacts | None = None,
    column: str | None = None,
) -> Trial:
    """Plan splits and steps from the survey, which knows how many documents end with `<eos>`.

    Args:
        survey: survey of the text, or of its part, to try.
        total: bytes of the whole text.
        first: the planner's budget of bytes and models, without counting `<eos>`.
        part: the records to try; None: the whole text.
        column: column or field that holds the text; None: the usual one.
    Raises: DataError for a text with too few lines.
    """
    longest = LARGEST_DOCUMENT * min(first.valid, first.test) * survey.characters
    documents = survey.cut_below(longest, FEWEST_DOCUMENTS) or survey.cuts[-1]
    require_lines(documents.count)

    is_whole = first.bytes == total
    ends = documents.count / survey.bytes
    with_ends = replace(
        planner, token_bytes=lambda types: 1 / (1 / planner.token_bytes(types) + ends)
    )
    machine = planner.machine
    training = planner.training
    budget = with_ends.budget(survey.bytes, machine.work, whole=is_whole)
    update_tokens = training.batch_tokens * training.accumulate
    steps = max(1, round(budget.passes * budget.tokens / update_tokens))
    good = with_ends.minutes_for(GOOD_PASSES) if budget.poor else None
    everything = planner.budget(total, inf)
    return Trial(budget, machine, total, documents, steps, everything, good, part, is_whole, column)


def require_lines(count: int) -> None:
    """Check that a text has enough lines to be cut into splits. Raises: DataError."""
    if count < FEWEST_DOCUMENTS:
        raise DataError(
            f"The text has {count} line{'s'[: count != 1]}, too few to cut it into train, valid and test: break it "
            r"into lines (sed 's/[.!?] /&\n/g' makes one of each sentence), or name the splits by hand "
            "(memlm tokenize --train FILE --valid FILE --test FILE)."
        )


def scored_shares(split: Sequence[str]) -> Shares:
    """The shares of valid and test, from the shares of all three splits. Raises: UsageError if they
    do not sum to 1.
    """
    shares = validated(TokenizeConfig, {"split": list(split)}).split or ()
    if len(shares) != 3:
        raise UsageError(
            "--split: try measures on a test split: give three shares, of train, valid and test."
        )
    return shares[1], shares[2]
