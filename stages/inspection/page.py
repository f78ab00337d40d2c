"""Web pages of inspected passages, and the choice of interesting passages of a split.

A page is self-contained and has no script. Passages are chosen by the token scores of a report.
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
from stages.retrieval.hyperparameters import quotes

GAINS = "gains"
LOSSES = "losses"
RARE = "rare"
KINDS = {
    GAINS: "Memory helps most",
    LOSSES: "Memory harms most",
    RARE: "Rare words on which memory makes the largest difference",
}
"""Criteria for choosing passages, and their titles on a page."""
RARE_BUCKET = BOUNDS.index(0)
"""First bucket of types that occur at most ten times in train."""


@dataclass(frozen=True)
class Chosen:
    """A passage, and the criterion by which it was chosen."""

    kind: str
    start: int
    stop: int
    nats: float
    """Nats gained on all tokens of the passage; lost, or of either sign on rare words, by
    criterion.
    """


def choose_passages(report: Artifact, kinds: Sequence[str], each: int, length: int) -> list[Chosen]:
    """Choose the passages of a report's split on which memory gains or loses most, or changes rare
    words most.

    Args:
        report: report with memory, and with scores of all tokens.
        kinds: criteria from KINDS.
        each: maximum number of passages of each kind; passages of a kind do not overlap.
        length: number of tokens of a passage.
    Raises: UsageError for an unknown kind, or a report on last words or without memory;
        ArtifactError for a report without token scores.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--select: there is no {kind!r}; {did_you_mean(kind, KINDS)}")
    gains, targets = _gains(report)
    length = min(length, len(gains))
    passages: list[Chosen] = []
    for kind in kinds:
        values = _values(kind, gains, targets, report)
        passages += [
            Chosen(kind, start, start + length, nats)
            for start, nats in heaviest(values, each, length)
        ]
    return passages


def heaviest(values: np.ndarray, max_rows: int, length: int) -> list[tuple[int, float]]:
    """Starts and sums of the windows with the largest sums above 0, the largest first, without
    overlap.

    Args:
        values: float [T]; `length` is at most T.

    >>> heaviest(np.array([0.0, 3, 1, 0, 0, 2, 0]), max_rows=3, length=2)
    [(1, 4.0), (4, 2.0)]
    """
    totals = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    sums = totals[length:] - totals[:-length]
    chosen: list[tuple[int, float]] = []
    while len(chosen) < max_rows and sums.size:
        start = int(np.argmax(sums))
        if not sums[start] > 0:
            break
        chosen.append((start, float(sums[start])))
        sums[max(0, start - length + 1) : start + length] = -np.inf
    return chosen


def _gains(report: Artifact) -> tuple[np.ndarray, np.ndarray]:
    """log(final / model) of every token of the split, float64 [T], and the ids of the tokens."""
    final = open_scores(report, "final")
    model = open_scores(report, "model")
    if report.config["score"] != "all":
        raise UsageError(
            f"{report.reference} scores last words alone: name a report of all tokens (--score all)."
        )
    if not report.metrics["memories"]:
        raise UsageError(
            f"{report.reference} has no memory, which gains and losses are of: name one that has."
        )
    gains = np.asarray(final.log_p[:], np.float64) - np.asarray(model.log_p[:])
    return np.nan_to_num(gains), np.asarray(final.targets[:])


def _values(kind: str, gains: np.ndarray, targets: np.ndarray, report: Artifact) -> np.ndarray:
    """The value of every token whose sum a kind of passage maximizes."""
    if kind != RARE:
        return gains if kind == GAINS else -gains
    read = {"model": report.input("model"), "tokens": report.input("tokens")}
    frequencies = find_frequencies("train", read, str(report.config["split"]))
    if frequencies is None:
        raise UsageError(f"--select {RARE}: no train split says which words are rare.")
    return np.where(frequencies.bucket_of[targets] >= RARE_BUCKET, np.abs(gains), 0.0)


TEMPLATE = Path(__file__).parent / "passage.html"


def page(inspected: Inspected) -> str:
    """The page as HTML; text of a corpus is escaped.

    Its title: `Who predicted tokens 20,000 to 20,023 of test: model, datastore or cache`.
    """
    last = inspected.start + len(inspected.tokens) - 1
    *others, latest = ["model", *inspected.memory_words]
    addresses = f"{', '.join(others)} or {latest}" if others else latest
    return _rendered(
        f"Who predicted tokens {inspected.start:,} to {last:,} of {inspected.split}: {addresses}",
        inspected,
    )


QUESTION = Path(__file__).parent / "question.html"


@dataclass(frozen=True)
class Question:
    """Fields of a form, as they were typed."""

    prompt: str = ""
    memory: str = ""
    max_tokens: str = "40"
    temperature: str = "0"
    seed: str = "0"


def question_page(
    title: str,
    question: Question,
    memories: Sequence[str],
    most: int,
    *,
    found: Inspected | None = None,
    written: str = "",
    refusal: str = "",
) -> str:
    """The page with a form, and below it the answer.

    Args:
        memories: names that may be chosen.
        most: largest number of tokens.
        found: the prompt and what was written behind it, token by token; None: no answer.
        written: what was written.
        refusal: why there is no answer.
    """
    from stages.web import render

    columns = [] if found is None else list(found.tokens[0].columns)
    return render(
        QUESTION,
        title=title,
        question=question,
        memories=memories,
        most=most,
        found=found,
        written=written,
        refusal=refusal,
        columns=columns,
        **HELPERS,
    )


def _rendered(title: str, inspected: Inspected, **values: Any) -> str:
    from stages.web import render

    columns = list(inspected.tokens[0].columns)
    return render(TEMPLATE, title=title, found=inspected, columns=columns, **HELPERS, **values)


@dataclass(frozen=True)
class ChosenPassage:
    """A passage on a page of several."""

    chosen: Chosen
    found: Inspected

    @property
    def heading(self) -> str:
        """`Memory helps most: tokens 20,000 to 20,031 of test, 14.2 nats`."""
        chosen = self.chosen
        where = f"tokens {chosen.start:,} to {chosen.start + len(self.found.tokens) - 1:,} of {self.found.split}"
        return f"{KINDS[chosen.kind]}: {where}, {number(round(chosen.nats, 1))} nats"


def page_of_passages(passages: Sequence[ChosenPassage], report: str) -> str:
    """The page of one or more passages, each in its own section."""
    first = passages[0].found
    heading = f"{len(passages)} passage{'s'[: len(passages) != 1]} of {first.split}: who predicted each token"
    return _rendered(heading, first, passages=passages, report=report)


def coloured(inspected: Inspected) -> list[str]:
    """Columns of probes that colour tokens: columns with numbers from 0 to 1, so no distances."""
    names = inspected.tokens[0].columns
    return [
        name for name in names if all(0 <= token.columns[name] <= 1 for token in inspected.tokens)
    ]


def has_learned(inspected: Inspected) -> bool:
    """Whether a memory was learned, so that nothing of it can be quoted."""
    return any(not quotes(memory["sources"]) for memory in inspected.memories)


def setting(value: float | str) -> str:
    """A setting of a reading as text: a number, `2,000` or `6.535`, or a word."""
    return value if isinstance(value, str) else number(value)


HELPERS = {
    "coloured": coloured,
    "has_learned": has_learned,
    "probability": probability,
    "quotes": quotes,
    "setting": setting,
}
"""Functions that templates call."""
