"""Questions as rows: what is read, and where the answer is in it."""

import numpy as np
import pytest

from stages.examples.cutting import Cutting
from stages.examples.documents import Questions

EOS = 0
TEXTS = [[5, 6, 7, 8], [9, 10, EOS], [11, 12, 13, 14, 15]]
ASKED = [[3, 4], [], [2]]
SPANS = [(1, 3), (0, 1), (4, 5)]


def split() -> dict[str, np.ndarray]:
    def joined(rows: list[list[int]], end: list[int]) -> tuple[np.ndarray, np.ndarray]:
        closed = [[*row, *end] for row in rows]
        return np.concatenate(closed), np.cumsum([0, *map(len, closed)])

    ids, offsets = joined(TEXTS, [])
    questions, question_offsets = joined(ASKED, [EOS])
    answers, answer_offsets = joined(
        [text[a:b] for text, (a, b) in zip(TEXTS, SPANS, strict=True)], [EOS]
    )
    return {
        "ids": ids,
        "doc_offsets": offsets,
        "tasks": np.array([0, 1, 0]),
        "question_ids": questions,
        "question_offsets": question_offsets,
        "answer_ids": answers,
        "answer_offsets": answer_offsets,
        "span_starts": np.array([a for a, _ in SPANS]),
        "span_stops": np.array([b for _, b in SPANS]),
    }


@pytest.mark.parametrize("context", [12, 6, 3])
def test_a_row_is_the_question_and_then_the_text_and_says_where_the_answer_is(context: int) -> None:
    examples = Questions.open(split(), EOS, Cutting("windows", context, context))
    batch = examples.batch(np.array([2, 0, 1]))
    for row, document in enumerate((2, 0, 1)):
        asked, text = ASKED[document], TEXTS[document]
        begin = 1 + (len(asked) + 1 if asked else 0)
        whole = [EOS, *([*asked, EOS] if asked else []), *text, EOS]
        read = whole[: min(context, len(whole) - 1)]
        assert batch.inputs[row][batch.mask[row]].tolist() == read
        assert batch.targets[row][batch.mask[row]].tolist() == whole[1 : len(read) + 1]
        assert examples.lengths[document] == len(read)
        legal = [place for place in range(len(read)) if place == 0 or place >= begin]
        assert batch.answerable[row].nonzero().flatten().tolist() == legal
        first, last = begin + SPANS[document][0], begin + SPANS[document][1] - 1
        assert batch.labels[row].tolist() == ([first, last] if last < len(read) else [0, 0])
        if last < len(read):
            assert read[first : last + 1] == text[slice(*SPANS[document])]
        own = batch.questions[row]
        assert (
            own.question.tolist() == asked and own.answer.tolist() == text[slice(*SPANS[document])]
        )
    assert [len(task.chosen) for task in examples.tasks()] == [2, 1]
