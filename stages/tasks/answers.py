"""Scores of answers in words, each from 0 to 1: exact match, F1 of words, and the joint goal of
dialogues.

Source: Rajpurkar et al. 2016 (SQuAD, arXiv:1606.05250), section 6.1, and McCann et al. 2018
(decaNLP, arXiv:1806.08730), section 2, whose code says how.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.errors import content_of
from stages.tasks.config import GOAL, Score

_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Accepted(NamedTuple):
    """Accepted answers of a document, and the dialogue that it continues."""

    answers: tuple[str, ...]
    dialogue: str | None = None


def read_accepted(path: Path) -> list[Accepted]:
    """The accepted answers of each document of a split. Raises: ArtifactError for a file with other
    content.
    """
    with content_of(path):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [Accepted(tuple(line["answers"]), line.get("dialogue")) for line in lines]


def read_candidates(path: Path) -> list[list[int] | None]:
    """The candidates of each document of a split. Raises: ArtifactError for a file with other
    content.
    """
    with content_of(path):
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def normalized(text: str) -> str:
    """Text in lower case, without punctuation and articles, with single spaces between words.

    >>> normalized("The  Red-haired man.")
    'redhaired man'
    """
    plain = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact(answer: str, accepted: Sequence[str]) -> float:
    """1 if an answer equals an accepted one, both normalized, else 0.

    >>> exact("the man.", ["a dog", "man"])
    1.0
    """
    return float(normalized(answer) in map(normalized, accepted))


def word_f1(answer: str, accepted: Sequence[str]) -> float:
    """F1 of the words of an answer, the best over the accepted answers; 0 without words.

    >>> word_f1("the red man", ["man in red clothes"])
    0.6666666666666666
    """
    return max(
        _f1(normalized(answer).split(), normalized(reference).split()) for reference in accepted
    )


def _f1(words: Sequence[str], other_words: Sequence[str]) -> float:
    same = sum((Counter(words) & Counter(other_words)).values())
    return 2 * same / (len(words) + len(other_words)) if same else 0.0


def joint_goals(answers: Sequence[str], accepted: Sequence[Accepted]) -> list[float]:
    """1 for each turn at which the state of the dialogue, from all answers so far, is right, else
    0.

    An answer changes the state: `slot: value, slot: value; request, request`. Turns of a dialogue
    come in their order.

    >>> turns = [Accepted(("food: thai;",), "1"), Accepted(("area: west; phone",), "1")]
    >>> joint_goals(["food: thai", "area: east"], turns)
    [1.0, 0.0]
    """
    scores = list[float]()
    states = dict[str | None, tuple[dict[str, str], dict[str, str]]]()
    for answer, record in zip(answers, accepted, strict=True):
        state, goal = states.setdefault(record.dialogue, ({}, {}))
        state |= _changes(answer)
        goal |= _changes(record.answers[0])
        scores.append(float(state == goal))
    return scores


def _changes(answer: str) -> dict[str, str]:
    """The values that an answer gives to slots."""
    pairs = (part.partition(":") for part in answer.partition(";")[0].split(","))
    return {normalized(slot): normalized(value) for slot, colon, value in pairs if colon}


def scores_of(score: Score, answers: Sequence[str], accepted: Sequence[Accepted]) -> list[float]:
    """The score of each answer."""
    if score == GOAL:
        return joint_goals(answers, accepted)
    one_by_one = {"exact": exact, "f1": word_f1}[score]
    return [
        one_by_one(answer, record.answers) for answer, record in zip(answers, accepted, strict=True)
    ]


def score_matrices(
    score: Mapping[str, Score],
    said: Mapping[tuple[int, int, str], Sequence[str]],
    accepted: Mapping[str, Any],
) -> np.ndarray:
    """Means of the scores of the tests, [rows, places, K].

    Args:
        score: of each task, in the order of the stream.
        said: answers to the test of a task, by row, place and task; rows and places are numbers
        from 0.
        accepted: accepted answers of the same documents, by task.
    """
    scores = np.zeros(
        (1 + max(row for row, _, _ in said), 1 + max(place for _, place, _ in said), len(score))
    )
    for (row, place, task), answers in said.items():
        scores[row, place, list(score).index(task)] = np.mean(
            scores_of(score[task], answers, accepted[task])
        )
    return scores
