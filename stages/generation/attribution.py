"""Sources of the probabilities of generated tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from stages.generation.session import Text
from stages.inspection.contexts import Context, Contexts, EnteredContext, EnteredContexts
from stages.inspection.reading import MemoryReader, ReadEntries
from stages.inspection.request import PASSAGE
from stages.retrieval.scored_range import ScoredRange
from stages.text.excerpt import SplitText

MOST_CONTEXTS = 3
"""Maximum number of passages listed for a token."""


@dataclass(frozen=True)
class Attributed:
    """Sources of a token's probability.

    `memories`: the probability that the entries of each reading added; the rest is the model's.
    `contexts`: the entries that added most, in falling order. `entered`: rows with this token that
    were gated into the hidden state.
    """

    memories: list[float]
    contexts: list[Context]
    entered: list[EnteredContext]


class Attribution:
    """Finds the sources of the probability of each token, while a text is written."""

    def __init__(self, reader: MemoryReader, text: Text) -> None:
        """`reader`: that of the session of the text."""
        self._reader = reader if text.stream is None else text.stream.reader
        self._text = text
        self._contexts = Contexts(self._reader)
        self._entered = EnteredContexts(self._reader)

    def of(self, scored_range: ScoredRange, tokens: Sequence[int]) -> list[Attributed]:
        """Attribute the tokens at the first positions of a range; they are in the text already."""
        number = len(tokens)
        start = scored_range.lm.start
        entries: list[list[ReadEntries]] = [[] for _ in tokens]
        rows_of_entries = [0] * number
        done = 0
        for shares, read in self._reader.read_entries(scored_range):
            for row in range(len(shares.model)):
                if done + row < number:
                    entries[done + row] = read
                    rows_of_entries[done + row] = row
            done += len(shares.model)
        entered = self._entered.read(PASSAGE, start, tokens)
        result = []
        for position, token in enumerate(tokens):
            memories = self._memories(
                entries[position], rows_of_entries[position], token, start + position
            )
            right = [context for context in entered[position] if context.right]
            result.append(Attributed(*memories, right))
        return result

    def _memories(
        self, entries: Sequence[ReadEntries], row: int, token: int, place: int
    ) -> tuple[list[float], list[Context]]:
        """Contribution of each memory, and the contexts that contributed most."""
        memories = [0.0] * len(self._reader.memories)
        for part in entries:
            is_token = part.values[row] == token
            memories[part.reading] += float(part.carried[row][is_token].sum())
        here = SplitText.of(self._text.passage, PASSAGE, self._reader.text)
        contexts = self._contexts.best(entries, row, token, place, here, MOST_CONTEXTS, right=True)
        return memories, contexts
