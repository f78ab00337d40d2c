"""Which passages carried a token that was written."""

from dataclasses import dataclass

from stages.inspection.contexts import Context, Contexts
from stages.inspection.entered import EnteredContext, EnteredContexts
from stages.inspection.passages import PASSAGE, Passage
from stages.inspection.reading import MemoryReader
from stages.retrieval.scored_range import ScoredRange
from stages.text.excerpt import SplitText

MOST_CONTEXTS = 3
"""Passages that are named a token."""


@dataclass(frozen=True)
class Attributed:
    """Where the probability of a token comes from.

    `memories`: of each reading what all of its entries with this token added; the rest is the model's. `contexts`: the
    entries that added most, the heaviest first. `entered`: the rows with this token that entered the hidden state.
    """

    memories: list[float]
    contexts: list[Context]
    entered: list[EnteredContext]


class Attribution:
    """Finds what carried each token of a text under way."""

    def __init__(self, reader: MemoryReader, passage: Passage) -> None:
        self._reader, self._passage = reader, passage
        self._contexts, self._entered = Contexts(reader), EnteredContexts(reader)

    def of(self, scored_range: ScoredRange, token: int) -> Attributed:
        """Attribute the token at the one position of the range."""
        place = scored_range.lm.start
        (near,) = self._entered.read(PASSAGE, place, [token])
        return Attributed(*self._memory(scored_range, token, place), [one for one in near if one.right])

    def _memory(self, scored_range: ScoredRange, token: int, place: int) -> tuple[list[float], list[Context]]:
        """Contribution of each memory, and the contexts that contributed most."""
        memories = [0.0] * len(self._reader.memories)
        entries = [one for _, some in self._reader.read_entries(scored_range) for one in some]
        for one in entries:
            memories[one.reading] += float(one.carried[0][one.values[0] == token].sum())
        here = SplitText.of(self._passage, PASSAGE, self._reader.text)
        return memories, self._contexts.best(entries, 0, token, place, here, MOST_CONTEXTS, right=True)
