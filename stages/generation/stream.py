"""One text and its state, read range by range as an evaluation reads a split.

Sessions need this where memory enters hidden states, where readings want the inputs of windows, and
where another model makes the keys or reads along.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.evaluation.range_reader import RangeReader
from stages.inspection.reading import MemoryReader
from stages.inspection.request import PASSAGE, Passage
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.policy import WeightPolicy

ANY = 0
"""Placeholder for the next token, which is not known yet; its own position does not read it."""


class Stream:
    """Tokens so far, and the state that the model and its memories carry after them."""

    def __init__(self, reader: MemoryReader, passage: Passage, first: int | None = None) -> None:
        """Args:
        reader: the model and its readings.
        passage: tokens of the text so far, which it extends.
        first: the input before the passage; None: `<eos>`.
        """
        self.passage = passage
        place = len(passage)
        self.reader = reader.of_passage(passage, first, place)
        self._history = self.reader.carried(PASSAGE, place) if place else CarriedState()
        self._block: ScoredRange | None = None
        self._after = self._history

    def read_range(self, drafted: Sequence[int] = ()) -> ScoredRange:
        """Score the positions of the drafted tokens, and of the token after them, with all that
        they read.

        The target of the last position is a placeholder.
        """
        place = len(self.passage)
        for token in (*drafted, ANY):
            self.passage.append(token)
        result = self.reader.read_range(PASSAGE, place, len(self.passage), self._history)
        self._block = result.scored_range
        self._after = result.after
        return result.scored_range

    def log_probs(self, scored_range: ScoredRange) -> Tensor:
        """Log-probabilities of every token at each position, with all memories read; natural log,
        float32 [n, V].
        """
        return dense_log_probs(self.reader.range_reader, scored_range, self.reader.policy)

    def put(self, token: int, number: int = 0) -> None:
        """Set the token at position `number` of the range that `read_range` scored last; later
        drafts are dropped.
        """
        assert self._block is not None, "the place of the token is read first"
        block = self._block
        self._block = None
        start = block.lm.start
        stop = start + number + 1
        whole = stop == len(self.passage)
        self.passage.cut(stop)
        self.passage.put_last(token)
        # Only the state after the token is needed, and neither memory nor probes change it.
        reader = replace(self.reader.range_reader, hidden_memory=None, probes={})
        # This state is right but for the id of the last token, which was not known when it was
        # read.
        if whole:
            self._history = _ending_with(self._after, token)
        elif reader.carries_state:
            self._history = reader.past(PASSAGE, start, stop, self._history)
        else:
            self._history = _ending_with(_cut_short(block, number + 1, reader.needs), token)


def dense_log_probs(
    reader: RangeReader, scored_range: ScoredRange, policy: WeightPolicy | None
) -> Tensor:
    """Log-probabilities of every token at each position, float32 [n, V].

    Args:
        scored_range: a range whose hidden states were kept.
        policy: weights of the memories; None: the model alone.
    """
    hidden = scored_range.lm.hidden
    assert hidden is not None, "hidden states are kept where the tokens that count are given"
    log_p = reader.model.log_probs(hidden)
    return log_p if policy is None else policy.dense(scored_range, log_p)


def _cut_short(block: ScoredRange, tokens: int, needs: Needs) -> CarriedState:
    """Carried state after the first tokens of a range, for a model that carries no hidden state."""
    dropped = len(block.lm) - tokens
    stop = block.lm.start + tokens
    if not needs.reach:
        return CarriedState(stop)

    def within_reach(joined: Tensor) -> Tensor:
        """The last entries that later readings reach; a copy, so that the rest can be freed."""
        remaining = joined[: len(joined) - dropped]
        return remaining[-needs.reach :].clone()

    keys = {name: within_reach(block.carried.joined_keys(block.lm, name)) for name in needs.keys}
    past_tokens = within_reach(block.carried.joined_tokens(block.lm))
    return CarriedState(stop, keys=keys, tokens=past_tokens)


def _ending_with(carried: CarriedState, token: int) -> CarriedState:
    """Replace the last token of a carried state."""
    if carried.tokens is None:
        return carried
    tokens = carried.tokens.clone()
    tokens[-1] = token
    return replace(carried, tokens=tokens)
