"""Documents as examples, beside slices of the text."""

import numpy as np

from stages.examples.cutting import Cutting
from stages.examples.documents import Documents

OFFSETS = np.array([0, 3, 4, 11, 13])
IDS = np.arange(50, 63, dtype=np.uint16)
SPLIT = {
    "ids": IDS,
    "doc_offsets": OFFSETS,
    "labels": np.array([2, 0, 1, 2]),
    "tasks": np.array([1, 0, 1, 0]),
}
EOS = 7


def documents(length: int = 5) -> Documents:
    return Documents.open(SPLIT, EOS, Cutting("windows", length, length))


def test_an_example_is_a_document_cut_at_the_end_and_padded() -> None:
    batch = documents().batch(np.array([2, 1]))
    assert (
        batch.inputs[0].tolist() == [EOS, *IDS[4:8]]
        and batch.targets[0].tolist() == IDS[4:9].tolist()
    )
    assert batch.inputs[1, 0] == EOS and batch.mask is not None
    assert batch.mask.tolist() == [[True] * 5, [True, False, False, False, False]]
    assert batch.rows(batch.targets).tolist() == [*IDS[4:9], IDS[3]]
    assert batch.labels.tolist() == [1, 0] and batch.documents.tolist() == [2, 1]


def test_tasks_are_sets_of_documents() -> None:
    first, second = documents().tasks()
    assert first.batch(np.array([1, 0])).documents.tolist() == [3, 1]
    assert second.lengths.tolist() == [3, 5] and second.count == 2
    assert first.of(np.array([2])).batch(np.array([0])).labels.tolist() == [1]


def test_the_text_is_read_whole_each_document_by_itself() -> None:
    blocks = list(documents().blocks(0, 13))
    assert [int(t) for block in blocks for t in block.batch.targets] == IDS.tolist()
    begins = {
        int(block.batch.inputs[row, 0]) for block in blocks for row in range(len(block.windows))
    }
    assert begins <= {EOS, *(int(IDS[start - 1]) for start in range(1, 13))}
