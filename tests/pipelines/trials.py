"""Planners of trials, for a text with the same number of bytes per token for every vocabulary."""

import re

from pipelines.trial import training_settings
from pipelines.trial_budget import Planner, Shares
from pipelines.trial_costs import Machine

TRAINING = training_settings()
NOVEL = 430_000
"""Bytes of a text."""


def three_bytes(types: int) -> float:
    """Bytes per token of a text, the same for every vocabulary."""
    return 3.0


def planner(machine: Machine, shares: Shares | None = None) -> Planner:
    return Planner(three_bytes, machine, TRAINING, shares)


def minutes_in(sentence: object) -> float:
    """The last number of minutes in a sentence."""
    return float(re.findall(r"--minutes (\d+)", str(sentence))[-1])
