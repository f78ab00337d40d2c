"""Text generation token by token: the growing text, the sources of each token's probability, and
sampling.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from stages.artifacts.store import Store
from stages.encoding.carried_state import CarriedState
from stages.errors import UsageError
from stages.evaluation.range_reader import RangeReader
from stages.generation import GenerationRequest
from stages.inspection.contexts import Context, Contexts, EnteredContext, EnteredContexts
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import PASSAGE, Passage, Request, find
from stages.lineage.indexes import EXACT
from stages.models.config import model_of
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.exact import ExactSource
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.policy import WeightPolicy
from stages.suffixes.text import Text
from stages.text.excerpt import SplitText

ANY = 0
"""Placeholder for the next token, which is not known yet; its own position does not read it."""


class Stream:
    """Tokens so far, and the state that the model and its memories carry after them."""

    def __init__(self, reader: MemoryReader, prompt: Sequence[int]) -> None:
        """Args:
        reader: the model and its readings.
        prompt: first tokens of the text, after a single `<eos>`; may be empty.
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
        """Score the positions of the drafted tokens, and of the token after them, with all that
        they read.

        The target of the last position is a placeholder.
        """
        place = len(self.passage)
        self._fit(1 + len(drafted))
        for token in (*drafted, ANY):
            self.passage.append(token)
        result = self.reader.read_range(PASSAGE, place, len(self.passage), self._history)
        self._block, self._after = result.scored_range, result.after
        return result.scored_range

    def _fit(self, added: int) -> None:
        """Switch to sliding windows, and drop the state, if `added` more tokens exceed the first
        window.
        """
        split_reader = self.reader.range_reader.split_reader
        if split_reader.in_pieces and len(self.passage) + added > split_reader.windows.context:
            self.reader = _read_in_pieces(self.reader, False)
            if added:
                self._history = replace(self._history, state=None)

    def each_log_probs(self, scored_range: ScoredRange) -> np.ndarray:
        """Log-probabilities of every token at each position, with all memories read; natural log,
        [n, V].
        """
        dense = dense_log_probs(self.reader.range_reader, scored_range, self.reader.policy)
        found: np.ndarray = dense.double().cpu().numpy()
        return found

    def put(self, token: int, number: int = 0) -> None:
        """Set the token at position `number` of the range that `read_range` scored last; later
        drafts are dropped.
        """
        assert self._block is not None, "the place of the token is read first"
        block, self._block = self._block, None
        start, stop = block.lm.start, block.lm.start + number + 1
        whole = stop == len(self.passage)
        self.passage.cut(stop)
        self.passage.put_last(token)
        # only the state after the token is needed, and neither memory nor probes change it
        reader = replace(self.reader.range_reader, hidden_memory=None, probes={})
        # this state is right but for the id of the last token, which was not known when it was read
        if whole:
            self._history = _ending_with(self._after, token)
        elif reader.carries_state:
            self._history = reader.past(PASSAGE, start, stop, self._history)
        else:
            self._history = _ending_with(_cut_short(block, number + 1, reader.needs), token)


def in_pieces(reader: RangeReader) -> bool:
    """Whether a text can be read in pieces: the model supports it, and no memory reads the inputs
    of windows.
    """
    return (
        reader.model.config.in_pieces
        and reader.hidden_memory is None
        and not reader.needs.window_keys
    )


def _read_in_pieces(reader: MemoryReader, whether: bool) -> MemoryReader:
    of_range = reader.range_reader
    split_reader = replace(
        of_range.split_reader, in_pieces=whether, by_document=False
    )  # a text is one document
    return replace(reader, range_reader=replace(of_range, split_reader=split_reader))


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

    def __init__(self, reader: MemoryReader, passage: Passage) -> None:
        self._reader, self._passage = reader, passage
        self._contexts, self._entered = Contexts(reader), EnteredContexts(reader)

    def of(self, scored_range: ScoredRange, token: int) -> Attributed:
        """Attribute the token at the one position of the range."""
        place = scored_range.lm.start
        (near,) = self._entered.read(PASSAGE, place, [token])
        return Attributed(
            *self._memory(scored_range, token, place), [one for one in near if one.right]
        )

    def _memory(
        self, scored_range: ScoredRange, token: int, place: int
    ) -> tuple[list[float], list[Context]]:
        """Contribution of each memory, and the contexts that contributed most."""
        memories = [0.0] * len(self._reader.memories)
        entries = [one for _, some in self._reader.read_entries(scored_range) for one in some]
        for one in entries:
            memories[one.reading] += float(one.carried[0][one.values[0] == token].sum())
        here = SplitText.of(self._passage, PASSAGE, self._reader.text)
        return memories, self._contexts.best(
            entries, 0, token, place, here, MOST_CONTEXTS, right=True
        )


STRIDE = 1
"""Windows move by one token, so that a backbone without state always reads a full context."""


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token, and its probability by the model and its memories, before temperature,
    top-k and top-p.
    """

    id: int
    probability: float
    attributed: Attributed | None
    drafted: bool = False
    """Whether the drawn token was the one that a draft had suggested."""


def open_writer(request: Request, store: Store, draft: str = "none") -> MemoryReader:
    """Open the model and memories that a request names, and the exact index if `draft` uses it.

    Raises: UsageError for a translation model.
    """
    found = find(request, store, None, stride=STRIDE, roles=(EXACT,) if draft != "none" else ())
    model = found.read["model"]
    if model_of(model).reads.source:
        raise UsageError(f"{model.reference} translates: use memlm translate {request.source}.")
    return load_reader(found, request)


def generate(reader: MemoryReader, wanted: GenerationRequest) -> Iterator[GeneratedToken]:
    """Yield the tokens after the prompt, one by one; deterministic for a seed. An `<eos>` that
    stops is left out.
    """
    stream = Stream(reader, reader.text.ids(wanted.prompt))
    attribution = Attribution(stream.reader, stream.passage) if wanted.attribute else None
    random, left = np.random.default_rng(wanted.seed), wanted.max_tokens
    while left:
        drafted = [] if wanted.draft == "none" else draft_exact(stream, left - 1)
        block = stream.read_range(drafted)
        for number, log_p in enumerate(stream.each_log_probs(block)):
            token = draw(
                probabilities(log_p, wanted.temperature, wanted.top_k, wanted.top_p), random
            )
            if wanted.stop_at_eos and token == reader.text.eos:
                return
            right = number < len(drafted) and token == drafted[number]
            if not right:
                stream.put(token, number)
            found = None if attribution is None else attribution.of(block, token)
            left -= 1
            yield GeneratedToken(token, float(np.exp(log_p[token])), found, right)
            # positions after a wrong guess were scored with that guess in their context
            if not right:
                break


DRAFTED = 8
"""Maximum number of tokens in a draft."""
SHORTEST = 2
"""Minimum length of a match whose continuation is drafted, in tokens."""


def draft_exact(stream: Stream, most: int) -> list[int]:
    """Draft the tokens that follow the longest match of the text's end in the exact index; none if
    it is too short.

    Drafts do not change the text: each token is drawn as it would be without them.
    Source: Saxena 2023, prompt lookup decoding; Leviathan et al. 2023 (arXiv:2211.17192) with a
    draft that is certain.
    """
    contexts = stream.reader.range_reader.memories[ExactSource].contexts
    tokens = stream.passage.ids
    asked = Text.of(np.append(tokens, 0), np.array([0, len(tokens) + 1]), contexts.text.vocabulary)
    located = contexts.locate(asked, np.array([len(tokens)]))
    if not most or located.longest[0] < SHORTEST:
        return []
    place = int(contexts.best(located, 1).places[0, 0])
    following = contexts.text.known[place + 1 : place + min(most, DRAFTED)]
    end = place + 1 + int((np.append(following, 0) == 0).argmax())  # at the end of its document
    return [int(token) for token in contexts.text.ids[place:end]]


def probabilities(
    log_p: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """Distribution from which a token is drawn, float64 [V], summing to 1; ties go to the lower id.

    Args:
        log_p: log-probabilities of all tokens, natural log, [V]; -inf is allowed.
        temperature: divisor of the log-probabilities; 0 takes the most probable token.
        top_k: keep the k most probable tokens.
        top_p: of these, keep the fewest whose probabilities reach p in sum.

    >>> probabilities(np.log([0.5, 0.3, 0.2]), top_p=0.7).round(3).tolist()  # two hold 0.8
    [0.625, 0.375, 0.0]

    Source: top-p is the nucleus of Holtzman et al. 2020 (arXiv:1904.09751), section 3.1.
    """
    log_p = log_p.astype(np.float64)
    if temperature == 0:
        certain = np.zeros(len(log_p))
        certain[log_p.argmax()] = 1
        return certain
    with np.errstate(over="ignore"):
        weights = np.exp((log_p - log_p.max()) / temperature)
    if top_k is None and top_p is None:
        return weights / weights.sum()
    # stable: ties go to the lower id on every machine
    order = np.argsort(-weights, kind="stable")[:top_k]
    kept = weights[order] / weights[order].sum()
    if top_p is not None:
        order = order[: np.searchsorted(np.cumsum(kept), top_p) + 1]
    drawn = np.zeros(len(log_p))
    drawn[order] = weights[order] / weights[order].sum()
    return drawn


def draw(probability: np.ndarray, random: np.random.Generator) -> int:
    """Draw a token: the first whose cumulative probability exceeds a uniform random number.

    >>> [draw(np.array([0.0, 1.0, 0.0]), np.random.default_rng(seed)) for seed in (0, 1)]
    [1, 1]
    """
    cumulative = np.cumsum(probability)
    token = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
    # rounding may put the number past the last token with a probability above 0
    return min(token, int(np.flatnonzero(probability)[-1]))
