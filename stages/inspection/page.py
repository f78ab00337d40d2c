"""Inspected passages as a web page, complete in itself, and those of a split that are worth looking at.

The page has no script, and nothing from elsewhere. The token scores of a report choose passages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError, did_you_mean
from stages.evaluation.figures.breakdown import BOUNDS, find_frequencies
from stages.evaluation.figures.token_scores import open_scores
from stages.inspection.inspect import Inspected
from stages.numbers import number, probability

GAINS, LOSSES, RARE = "gains", "losses", "rare"
KINDS = {
    GAINS: "Memory helps most",
    LOSSES: "Memory harms most",
    RARE: "Rare words on which memory makes the largest difference",
}
"""Criteria for choosing passages, and their titles on a page."""
RARE_BUCKET = BOUNDS.index(0)
"""First bucket of frequencies whose types stand ten times in train at most."""


@dataclass(frozen=True)
class Chosen:
    """A passage and what it was chosen for."""

    kind: str
    start: int
    stop: int
    nats: float
    """Gained (lost, or of rare words either) on all of its tokens."""


def choose_passages(report: Artifact, kinds: Sequence[str], each: int, length: int) -> list[Chosen]:
    """The passages of a report's split on which memory gains or loses most, or does most to rare words.

    Args:
        report: made with token scores, of all tokens, and with memory.
        kinds: of KINDS.
        each: passages of each kind; fewer where there are no more, and none overlap within a kind.
        length: tokens of a passage.
    Raises: UsageError for an unknown kind, and reports of last words or without memory; ArtifactError for one
        without token scores.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--select: there is no {kind!r}; {did_you_mean(kind, KINDS)}")
    gains, targets = _gains(report)
    length = min(length, len(gains))
    found: list[Chosen] = []
    for kind in kinds:
        values = _values(kind, gains, targets, report)
        found += [Chosen(kind, start, start + length, nats) for start, nats in heaviest(values, each, length)]
    return found


def heaviest(values: np.ndarray, most: int, length: int) -> list[tuple[int, float]]:
    """Starts and sums of the windows with the largest sums above 0, the heaviest first, that do not overlap.

    Args:
        values: float [T]; `length` is T at most.

    >>> heaviest(np.array([0.0, 3, 1, 0, 0, 2, 0]), most=3, length=2)
    [(1, 4.0), (4, 2.0)]
    """
    totals = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    sums = totals[length:] - totals[:-length]
    found: list[tuple[int, float]] = []
    while len(found) < most and sums.size:
        start = int(np.argmax(sums))
        if not sums[start] > 0:
            break
        found.append((start, float(sums[start])))
        sums[max(0, start - length + 1) : start + length] = -np.inf
    return found


def _gains(report: Artifact) -> tuple[np.ndarray, np.ndarray]:
    """log(final / model) of every token of the split, float64 [T], and the tokens."""
    final, model = open_scores(report, "final"), open_scores(report, "model")
    if report.config["score"] != "all":
        raise UsageError(f"{report.reference} scores last words alone: name a report of all tokens (--score all).")
    if not report.metrics["memories"]:
        raise UsageError(f"{report.reference} has no memory, which gains and losses are of: name one that has.")
    gains = np.asarray(final.log_p[:], np.float64) - np.asarray(model.log_p[:])
    return np.nan_to_num(gains), np.asarray(final.targets[:])


def _values(kind: str, gains: np.ndarray, targets: np.ndarray, report: Artifact) -> np.ndarray:
    """The value of every token that passages of a kind have most of."""
    if kind != RARE:
        return gains if kind == GAINS else -gains
    read = {"model": report.input("model"), "tokens": report.input("tokens")}
    frequencies = find_frequencies("train", read, str(report.config["split"]))
    if frequencies is None:
        raise UsageError(f"--select {RARE}: no train split says which words are rare.")
    return np.where(frequencies.bucket_of[targets] >= RARE_BUCKET, np.abs(gains), 0.0)


TEMPLATE = Path(__file__).parent / "passage.html"


def page(found: Inspected) -> str:
    """The page; what comes from a corpus is escaped."""
    return _rendered(title(found), found)


def _rendered(title: str, found: Inspected, **values: Any) -> str:
    from stages.web import render

    columns = list(found.tokens[0].columns)
    shown = {"coloured": coloured, "probability": probability, "setting": setting}
    return render(TEMPLATE, title=title, found=found, columns=columns, **shown, **values)


@dataclass(frozen=True)
class ChosenPassage:
    """A passage of a page of several."""

    chosen: Chosen
    found: Inspected

    @property
    def heading(self) -> str:
        """`Memory helps most: tokens 20,000 to 20,031 of test, 14.2 nats`."""
        one = self.chosen
        where = f"tokens {one.start:,} to {one.start + len(self.found.tokens) - 1:,} of {self.found.split}"
        return f"{KINDS[one.kind]}: {where}, {number(round(one.nats, 1))} nats"


def page_of_passages(passages: Sequence[ChosenPassage], report: str) -> str:
    """The page of several passages, of which there is one at least, each with a place of its own."""
    first = passages[0].found
    heading = f"{len(passages)} passage{'s'[: len(passages) != 1]} of {first.split}: who predicted each token"
    return _rendered(heading, first, passages=passages, report=report)


def title(found: Inspected) -> str:
    """`Who predicted tokens 20,000 to 20,023 of test: model, datastore or cache`."""
    last = found.start + len(found.tokens) - 1
    *others, latest = ["model", *found.memory_words]
    asked = f"{', '.join(others)} or {latest}" if others else latest
    return f"Who predicted tokens {found.start:,} to {last:,} of {found.split}: {asked}"


def coloured(found: Inspected) -> list[str]:
    """Probe columns that colour tokens: numbers from 0 to 1, unlike distances."""
    names = found.tokens[0].columns
    return [name for name in names if all(0 <= token.columns[name] <= 1 for token in found.tokens)]


def setting(value: float | str) -> str:
    """A number of a reading, `2,000` or `6.535`; or a word."""
    return value if isinstance(value, str) else number(value)
