"""A text that grows: read after each token, and attributed to the contexts that carried it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.evaluation.range_reader import RangeReader
from stages.inspection.contexts import Context, Contexts, EnteredContext, EnteredContexts
from stages.inspection.passages import PASSAGE, Passage
from stages.inspection.reading import MemoryReader
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.weights.policy import WeightPolicy
from stages.text.excerpt import SplitText

ANY = 0
"""Stands in the place of the token that is not there yet; what is read of its own position does not see it."""


class Stream:
    """Tokens so far, and what the model and its memories take on from them."""

    def __init__(self, reader: MemoryReader, prompt: Sequence[int]) -> None:
        """Args:
        reader: the model and its readings.
        prompt: tokens that stand there already, after a lone `<eos>`; may be empty.
        """
        self.passage = Passage(prompt)
        self.reader = reader.of_passage(self.passage)
        self._history = self.reader.carried(PASSAGE, len(prompt)) if prompt else CarriedState()
        self._after: CarriedState | None = None

    @property
    def tokens(self) -> list[int]:
        """All tokens, the prompt's first."""
        return [int(id) for id in self.passage.ids]

    def read_range(self) -> ScoredRange:
        """The position of the next token, with all that it reads; its target stands for no token."""
        place = len(self.passage)
        self.passage.append(ANY)
        result = self.reader.range_reader.read(PASSAGE, place, place + 1, self._history)
        self._after = result.after
        return result.scored_range

    def log_probs(self, scored_range: ScoredRange) -> np.ndarray:
        """Log-probabilities of every next token with all memories read, natural log, [V]."""
        dense = dense_log_probs(self.reader.range_reader, scored_range, self.reader.policy)
        found: np.ndarray = dense[0].double().cpu().numpy()
        return found

    def put(self, token: int) -> None:
        """Go on with a token in the place that `read_range` scored last."""
        assert self._after is not None, "the place of the token is read first"
        self.passage.put_last(token)
        self._history, self._after = _ending_with(self._after, token), None


def dense_log_probs(reader: RangeReader, scored_range: ScoredRange, policy: WeightPolicy | None) -> Tensor:
    """Log-probabilities of every token with a row read as its policy says, float32 [n, V].

    Args:
        scored_range: a range whose hidden states were kept.
        policy: None: the plain model.
    """
    hidden = scored_range.lm.hidden
    assert hidden is not None, "hidden states are kept where the tokens that count are given"
    log_p = reader.model.log_probs(hidden)
    return log_p if policy is None else policy.dense(scored_range, log_p)


def _ending_with(carried: CarriedState, token: int) -> CarriedState:
    """Replace the last token of a carried state."""
    if carried.tokens is None:
        return carried
    tokens = carried.tokens.clone()
    tokens[-1] = token
    return replace(carried, tokens=tokens)


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
