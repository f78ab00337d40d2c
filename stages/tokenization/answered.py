"""Questions and answers of the records of tasks: read, checked, and written as tokens."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stages.errors import DataError
from stages.reporting import Reporter
from stages.text.records import require_unicode
from stages.text.tokenizer import TextTokenizer
from stages.tokenization.size_warnings import UNKNOWN

ASKED = ("question", "answer", "answers", "answer_start", "dialogue")
"""Fields of a record with an answer."""


class Answered(NamedTuple):
    """A question of a text, and what is accepted as its answer."""

    question: str
    answers: tuple[str, ...]
    """All that are accepted; the first is learnt."""
    start: int | None = None
    """Character of the text at which the first answer begins; None: it is in words."""
    dialogue: str | None = None
    """Name of the dialogue whose next turn this is."""

    def dumped(self) -> dict[str, Any]:
        """Those parts that scoring reads, as JSON."""
        return {"answers": self.answers} | ({} if self.dialogue is None else {"dialogue": self.dialogue})


def asked_of(where: str, text: str, record: Mapping[str, Any], in_text: bool) -> Answered:
    """Question and answers of a record.

    Args:
        in_text: whether the first answer must stand in the text, where `answer_start` says, or else anywhere.
    Raises: DataError, beginning with `where`, for a record without an answer, or with one that is not there.
    """
    given = record.get("answers", record.get("answer"))
    answers = given if isinstance(given, list) else [given]
    if not answers or not all(isinstance(one, str) and one.strip() for one in answers):
        raise DataError(f"{where}: expected a text in its field answer, or a list of texts in its field answers.")
    question = record.get("question", "")
    if not isinstance(question, str):
        raise DataError(f"{where}: its question is no text.")
    for name, one in (("question", question), *(("answer", one) for one in answers)):
        require_unicode(f"{where}, {name}", one)
    named, dialogue = record.get("answer_start"), record.get("dialogue")
    if dialogue is not None and type(dialogue) not in (str, int):
        raise DataError(f"{where}: expected the name of a dialogue, a text or a whole number, in its field dialogue.")
    if in_text and named is not None and type(named) is not int:
        raise DataError(f"{where}: expected the number of a character in its field answer_start, counted from 0.")
    start = None
    if in_text:
        first = answers[0]
        start = text.find(first) if named is None else named if named >= 0 and text[named:].startswith(first) else -1
        if start < 0:
            place = "" if named is None else f" at character {named}"
            raise DataError(
                f"{where}: the answer {first!r} does not stand in the text{place}; --records answers is for answers "
                "in other words."
            )
    return Answered(question, tuple(answers), start, None if dialogue is None else str(dialogue))


class AnswerArrays(NamedTuple):
    """Questions and answers of a split as tokens, each with `<eos>` behind it; see `QUESTIONS` of `form`."""

    question_ids: np.ndarray
    question_offsets: np.ndarray
    answer_ids: np.ndarray
    answer_offsets: np.ndarray
    span_starts: np.ndarray
    span_stops: np.ndarray

    @property
    def figures(self) -> dict[str, int]:
        """Figures of the split."""
        longest = int(np.diff(self.answer_offsets).max()) - 1
        return {
            "question_tokens": len(self.question_ids),
            "answer_tokens": len(self.answer_ids),
            "longest_answer": longest,
        }


def answer_arrays(tokenizer: TextTokenizer, asked: Sequence[Answered], texts: Sequence[str]) -> AnswerArrays:
    """Encode what was read of a split, whose texts are read again to find spans."""
    questions = _encoded(tokenizer, [one.question for one in asked])
    answers = _encoded(tokenizer, [one.answers[0] for one in asked])
    spans = np.full((len(asked), 2), -1, np.int32)
    if asked and asked[0].start is not None:
        whole = tokenizer.huggingface()
        for row, one, text in zip(spans, asked, texts, strict=True):
            assert one.start is not None
            offsets = whole.encode(text, add_special_tokens=False).offsets
            row[:] = token_span(offsets, one.start, len(one.answers[0]))
    return AnswerArrays(*questions, *answers, *spans.T)


def _encoded(tokenizer: TextTokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of texts end to end, and where each begins, int64 [D + 1]."""
    # One by one: a pretrained tokenizer may join what it is given together.
    ids = [np.append(tokenizer.encode_texts([text])[0] if text else [], tokenizer.eos_id) for text in texts]
    return np.concatenate(ids).astype(tokenizer.dtype), np.cumsum([0, *map(len, ids)], dtype=np.int64)


def token_span(offsets: Sequence[tuple[int, int]], start: int, length: int) -> tuple[int, int]:
    """Tokens [first, behind the last) that have a character of an answer; (-1, -1): none has.

    Args:
        offsets: characters [start, stop) of each token.

    >>> token_span([(0, 1), (1, 5), (5, 9)], start=2, length=3)
    (1, 2)
    """
    inside = [place for place, (a, b) in enumerate(offsets) if a < start + length and b > start]
    return (inside[0], inside[-1] + 1) if inside else (-1, -1)


def warn_of_unknown_questions(split: str, made: AnswerArrays, unknown: int | None, reporter: Reporter) -> None:
    """Warn of questions and answers with words that the texts have not."""
    rate = (np.concatenate((made.question_ids, made.answer_ids)) == unknown).mean()
    if rate > UNKNOWN:
        reporter.warning(
            f"{rate:.1%} of the tokens of questions and answers of {split} are <unk>: a vocabulary of words has those "
            "of the texts alone; --tokenizer bpe knows all"
        )
