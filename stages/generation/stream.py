"""A text that grows: read after each token, and attributed to the contexts that carried it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.evaluation.range_reader import RangeReader
from stages.inspection.contexts import Context, Contexts, EnteredContext, EnteredContexts
from stages.inspection.reading import MemoryReader
from stages.inspection.request import PASSAGE, Passage
from stages.models.layers.settings import reads_in_pieces
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.source import Needs
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
        if in_pieces(self.reader.range_reader):
            self.reader = _read_in_pieces(self.reader, True)
            self._fit(0)
        reads = self.reader.range_reader
        self._history = self.reader.carried(PASSAGE, len(prompt)) if prompt else reads.beginning
        self._block: ScoredRange | None = None
        self._after = self._history

    @property
    def tokens(self) -> list[int]:
        """All tokens, the prompt's first."""
        return [int(id) for id in self.passage.ids]

    def read_range(self, drafted: Sequence[int] = ()) -> ScoredRange:
        """The positions of the next tokens, with all that they read: of those `drafted`, and of one behind them.

        The target of the last stands for no token.
        """
        place = len(self.passage)
        self._fit(1 + len(drafted))
        for token in (*drafted, ANY):
            self.passage.append(token)
        result = self.reader.read_range(PASSAGE, place, len(self.passage), self._history)
        self._block, self._after = result.scored_range, result.after
        return result.scored_range

    def _fit(self, added: int) -> None:
        """Read as windows slide from where a text would be longer than the first: nothing of that goes on behind it."""
        split_reader = self.reader.range_reader.split_reader
        if split_reader.in_pieces and len(self.passage) + added > split_reader.windows.context:
            self.reader = _read_in_pieces(self.reader, False)
            if added:
                self._history = replace(self._history, state=None)

    def log_probs(self, scored_range: ScoredRange) -> np.ndarray:
        """Log-probabilities of every token at the first position with all memories read, natural log, [V]."""
        found: np.ndarray = self.each_log_probs(scored_range)[0]
        return found

    def each_log_probs(self, scored_range: ScoredRange) -> np.ndarray:
        """The same at each position, [n, V]."""
        dense = dense_log_probs(self.reader.range_reader, scored_range, self.reader.policy)
        found: np.ndarray = dense.double().cpu().numpy()
        return found

    def put(self, token: int, number: int = 0) -> None:
        """Go on with a token in a place of those that `read_range` scored last; what was drafted behind it is gone."""
        assert self._block is not None, "the place of the token is read first"
        block, self._block = self._block, None
        start, stop = block.lm.start, block.lm.start + number + 1
        whole = stop == len(self.passage)
        self.passage.cut(stop)
        self.passage.put_last(token)
        # only the state after the token is wanted, which neither memory nor probes change
        reader = replace(self.reader.range_reader, hidden_memory=None, probes={})
        # the state is that after the last token but its id, which was not known when it was read
        if whole:
            self._history = _ending_with(self._after, token)
        elif reader.carries_state:
            self._history = reader.past(PASSAGE, start, stop, self._history)
        else:
            self._history = _ending_with(_cut_short(block, number + 1, reader.needs), token)


def in_pieces(reader: RangeReader) -> bool:
    """Whether a text is read in pieces: the model can, and no memory looks at the inputs of windows."""
    return reads_in_pieces(reader.model.config) and reader.hidden_memory is None and not reader.needs.window_keys


def _read_in_pieces(reader: MemoryReader, whether: bool) -> MemoryReader:
    of_range = reader.range_reader
    split_reader = replace(of_range.split_reader, in_pieces=whether, by_document=False)  # a text is one document
    return replace(reader, range_reader=replace(of_range, split_reader=split_reader))


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


def _cut_short(block: ScoredRange, tokens: int, needs: Needs) -> CarriedState:
    """The past behind the first tokens of a range, of a model that carries no state."""
    dropped, stop = len(block.lm) - tokens, block.lm.start + tokens
    if not needs.reach:
        return CarriedState(stop)

    def kept(joined: Tensor) -> Tensor:
        return joined[: len(joined) - dropped][-needs.reach :].clone()

    keys = {name: kept(block.carried.joined_keys(block.lm, name)) for name in needs.keys}
    return CarriedState(stop, keys=keys, tokens=kept(block.carried.joined_tokens(block.lm)))


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
