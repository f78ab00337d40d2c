"""Which passages carried a token that was written."""

from dataclasses import dataclass

from stages.evaluation.consulted import Consulted
from stages.inspection.contexts import Context, Contexts
from stages.inspection.passages import PASSAGE, Passage
from stages.inspection.reading import MemoryReader
from stages.inspection.sources import SplitText
from stages.inspection.weights import read_cells

MOST_CONTEXTS = 3
"""Passages that are named a token."""


@dataclass(frozen=True)
class Attributed:
    """Where the probability of a token comes from: the sum of what each memory gave, and its heaviest contexts.

    `memories`: of each reading what all of its cells with this token added; the rest of the probability is the
    model's.
    """

    memories: list[float]
    contexts: list[Context]


class Attribution:
    """Finds what carried each token of a text under way."""

    def __init__(self, reader: MemoryReader, passage: Passage) -> None:
        self._reader = reader
        self._contexts, self._passage = Contexts(reader), passage

    def of(self, consulted: Consulted, token: int) -> Attributed:
        """What carried the token at the one position that was consulted."""
        if self._reader.row is None or self._reader.settings is None:
            return Attributed([], [])
        ((_, cells),) = read_cells(self._reader.row, self._reader.settings, consulted)
        memories = [0.0] * len(self._reader.row.plans)
        for one in cells:
            memories[one.reading] += float(one.carried[0][one.values[0] == token].sum())
        here = SplitText.of(self._passage, PASSAGE, self._reader.text)
        place = consulted.scored.start
        return Attributed(memories, self._contexts.best(cells, 0, token, place, here, MOST_CONTEXTS, right=True))
