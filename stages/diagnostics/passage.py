"""A few consecutive tokens of a split that probes show one by one. Free of torch."""

import re

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError

FORM = re.compile(r"([0-9]{1,15}):([0-9]{1,15})")
USUAL = 64
"""Tokens that are shown where nobody says."""
LONGEST = 256
"""Tokens that a heat map has room for."""


def spelled_passage(passage: str) -> str:
    """START:STOP as it is kept. Raises: ValueError if it is not of this form."""
    found = FORM.fullmatch(passage)
    if found is None:
        raise ValueError(f"{passage!r} is no START:STOP, such as 0:64")
    return f"{int(found[1])}:{int(found[2])}"


def tokens_of(passage: str | None) -> range:
    """The tokens of a passage; of None, none."""
    start, stop = map(int, (passage or "0:0").split(":"))
    return range(start, stop)


def resolve_passage(asked: str | None, split: str, tokens: Artifact) -> str:
    """A passage that lies in a split: the first tokens unless one is asked for, cut where the split ends.

    Raises: UsageError if it holds no token, or too many.
    """
    total = int(tokens.metrics["splits"][split]["tokens"])
    wanted = range(USUAL) if asked is None else tokens_of(asked)
    stop = min(wanted.stop, total)
    if wanted.start >= stop:
        raise UsageError(f"--passage {asked} holds no token: {split} has {total:,} tokens.")
    if stop - wanted.start > LONGEST:
        raise UsageError(f"--passage {asked} is longer than {LONGEST} tokens, the most that are shown.")
    return f"{wanted.start}:{stop}"
