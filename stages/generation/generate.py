"""Writing text token by token, and drawing a token from a distribution."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation import GenerationRequest
from stages.generation.stream import Attributed, Attribution, Stream
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Request, find
from stages.models.config import model_of
from stages.suffixes.text import Text

STRIDE = 1
"""A backbone without state always reads as many tokens back as its context holds."""


@dataclass(frozen=True)
class GeneratedToken:
    """One more token, with its probability by the model and its memories, before temperature and cuts."""

    id: int
    probability: float
    attributed: Attributed | None
    drafted: bool = False
    """Whether it was suggested before it was drawn."""


def open_writer(request: Request, store: Store, draft: str = "none") -> MemoryReader:
    """The model and memories that a request names, for writing, and the index that drafts.

    Raises: UsageError for a model that translates.
    """
    found = find(request, store, None, stride=STRIDE, matches=draft != "none")
    model = found.read["model"]
    if model_of(model).reads.source:
        raise UsageError(f"{model.reference} translates: use memlm translate {request.source}.")
    return load_reader(found, request)


def generate(reader: MemoryReader, wanted: GenerationRequest) -> Iterator[GeneratedToken]:
    """Tokens behind the prompt, one by one; the same seed gives the same tokens. An `<eos>` that stops is left out."""
    stream = Stream(reader, reader.text.ids(wanted.prompt))
    attribution = Attribution(stream.reader, stream.passage) if wanted.attribute else None
    random, left = np.random.default_rng(wanted.seed), wanted.max_tokens
    while left:
        drafted = [] if wanted.draft == "none" else draft_exact(stream, left - 1)
        block = stream.read_range(drafted)
        for number, log_p in enumerate(stream.each_log_probs(block)):
            token = draw(probabilities(log_p, wanted.temperature, wanted.top_k, wanted.top_p), random)
            if wanted.stop_at_eos and token == reader.text.eos:
                return
            right = number < len(drafted) and token == drafted[number]
            if not right:
                stream.put(token, number)
            found = None if attribution is None else attribution.of(block, token)
            left -= 1
            yield GeneratedToken(token, float(np.exp(log_p[token])), found, right)
            # what was drafted behind a wrong guess was read in a text that is not this one
            if not right:
                break


DRAFTED = 8
"""Tokens that are suggested at most."""
SHORTEST = 2
"""Tokens of a match from which on it suggests what follows."""


def draft_exact(stream: Stream, most: int) -> list[int]:
    """The tokens behind the longest match of a text under way in the text of the exact index; none if it is short.

    Each suggestion is drawn as if it had not been made, so the text is the same.
    Source: Saxena 2023, prompt lookup decoding; Leviathan et al. 2023 (arXiv:2211.17192) with a draft that is certain.
    """
    matched = stream.reader.range_reader.matched
    assert matched is not None, "what drafts is opened"
    contexts, tokens = matched.contexts, stream.passage.ids
    asked = Text.of(np.append(tokens, 0), np.array([0, len(tokens) + 1]), contexts.text.vocabulary)
    located = contexts.locate(asked, np.array([len(tokens)]))
    if not most or located.longest[0] < SHORTEST:
        return []
    place = int(contexts.best(located, 1).places[0, 0])
    following = contexts.text.known[place + 1 : place + min(most, DRAFTED)]
    end = place + 1 + int((np.append(following, 0) == 0).argmax())  # where its document ends
    return [int(token) for token in contexts.text.ids[place:end]]


def probabilities(
    log_p: np.ndarray, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """The distribution that a token is drawn from, float64 [V], summing to 1; of equals the lower id is kept first.

    Args:
        log_p: log-probabilities of all tokens, natural log, [V]; -inf is allowed.
        temperature: they are divided by it; 0 takes the most probable token.
        top_k, top_p: then only that many tokens are kept, and of these the fewest that hold that probability.

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
    # stable: of equals the lower id is kept, on every machine
    order = np.argsort(-weights, kind="stable")[:top_k]
    kept = weights[order] / weights[order].sum()
    if top_p is not None:
        order = order[: np.searchsorted(np.cumsum(kept), top_p) + 1]
    drawn = np.zeros(len(log_p))
    drawn[order] = weights[order] / weights[order].sum()
    return drawn


def draw(probability: np.ndarray, random: np.random.Generator) -> int:
    """A token by its probability: the first whose cumulative probability exceeds one uniform number.

    >>> [draw(np.array([0.0, 1.0, 0.0]), np.random.default_rng(seed)) for seed in (0, 1)]
    [1, 1]
    """
    cumulative = np.cumsum(probability)
    token = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
    # rounding may put the number at the very end, behind the last token that can be drawn
    return min(token, int(np.flatnonzero(probability)[-1]))
