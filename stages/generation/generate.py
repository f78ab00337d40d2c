"""Text generation token by token, by a model with its memories."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation import GenerationRequest
from stages.generation.attribution import Attributed, Attribution
from stages.generation.chat import chat_ids
from stages.generation.drafts import draft_exact
from stages.generation.mixing import Distributions
from stages.generation.sampling import draw, probabilities
from stages.generation.session import Text, TextSession
from stages.generation.stopping import StoppedText
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Request, Resolved, find
from stages.lineage.indexes import EXACT
from stages.models.config import model_of


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token, and its probability by the model and its memories, before temperature,
    top-k and top-p.
    """

    id: int
    text: str
    """Text that it makes certain: characters that it completes, and that begin no stop string."""
    probability: float
    attributed: Attributed | None
    drafted: bool = False
    """Whether the drawn token was the one that a draft had suggested."""


Ended = Literal["stop", "length"]


class GenerationStep(NamedTuple):
    """Tokens that one step added to a text, several if a draft was right."""

    number: int
    """Number of the text's prompt, from 0."""
    tokens: list[GeneratedToken]
    rest: str
    """Text that was held back until the end came."""
    ended: Ended | None
    """How the text ended: by a stop string or an end of its own, or by its length; None: not yet."""


def open_writer(request: Request, store: Store, draft: str = "none") -> MemoryReader:
    """Open the model and memories that a request names, and the exact index if `draft` uses it.

    Raises: as of `find_written`.
    """
    roles = (EXACT,) if draft != "none" else ()
    return load_reader(find_written(request, store, roles), request)


def find_written(request: Request, store: Store, roles: Sequence[str] = ()) -> Resolved:
    """Find the model and memories that a request names, with which text is written.

    Windows are those in which text is written: see `stages.inspection.request.find`.

    Args:
        roles: as of `find`.
    Raises: UsageError for a translation model.
    """
    resolved = find(request, store, None, writes=True, roles=roles)
    model = resolved.read["model"]
    if model_of(model).reads.source:
        raise UsageError(f"{model.reference} translates: use memlm translate {request.source}.")
    return resolved


def generate(reader: MemoryReader, request: GenerationRequest) -> Iterator[GeneratedToken]:
    """Yield the tokens after the prompt of a request, one by one; deterministic for a seed.

    Text that `generate_each` gives at the end, besides that of tokens, is left out.
    """
    for step in generate_each(reader, [prompt_ids(reader, request)], request):
        yield from step.tokens


def prompt_ids(reader: MemoryReader, request: GenerationRequest) -> list[int]:
    """Tokens of the prompt of a request. Raises: UsageError for a chat with a model that has none."""
    if not request.chat:
        return reader.text.prompt_ids(request.prompt)
    return chat_ids(reader, [{"role": "user", "content": request.prompt}])


def generate_each(
    reader: MemoryReader, prompts: Iterable[Sequence[int]], request: GenerationRequest
) -> Iterator[GenerationStep]:
    """Continue prompts, `batch_size` at a time; each text is what its prompt alone would give.

    Every text draws from its own numbers of the seed. Where one ends, the next prompt begins. A
    token that ends a text is left out. With drafts, texts are written one after another.
    """
    session = TextSession(reader)
    live = list[_Writing]()
    waiting = enumerate(prompts)
    max_texts = 1 if request.draft != "none" else request.batch_size
    while True:
        for number, ids in islice(waiting, max_texts - len(live)):
            live.append(_Writing(session, session.add(ids), number, request))
        if not live:
            return
        drafts = [writing.draft() for writing in live]
        pairs = [(writing.text, draft) for writing, draft in zip(live, drafts, strict=True)]
        for writing, draft, read in zip(tuple(live), drafts, session.read(pairs), strict=True):
            step = writing.step(draft, read)
            yield step
            if step.ended is not None:
                session.drop(writing.text)
                live.remove(writing)


class _Writing:
    """One text that is being written."""

    def __init__(
        self, session: TextSession, text: Text, number: int, request: GenerationRequest
    ) -> None:
        self.text = text
        self._session = session
        self._number = number
        self._wanted = request
        reader = session.reader
        self._attribution = Attribution(reader, text) if request.attribute else None
        self._random = np.random.default_rng(request.seed)
        self._left = request.max_tokens
        self._ends = ends_of(reader) if stops_at_end(reader, request) else frozenset[int]()
        self._written = StoppedText(reader.text, request.stop or ())

    def draft(self) -> list[int]:
        """A guess at the next tokens; empty without drafts."""
        if self._wanted.draft == "none":
            return []
        return draft_exact(self._session.reader, self.text, self._left - 1)

    def step(self, draft: Sequence[int], read: Distributions) -> GenerationStep:
        """Draw the next tokens: those of the draft, as long as they are drawn, and one more."""
        log_p = read.log_p.double().cpu().numpy()
        tokens = list[int]()
        pieces = list[str]()
        ended: Ended | None = None
        for number, row in enumerate(log_p):
            token = self._sample(row)
            if token in self._ends:
                ended = "stop"
                break
            tokens.append(token)
            pieces.append(self._written.add(token))
            if self._written.stopped:
                ended = "stop"
                break
            if len(tokens) == self._left:
                ended = "length"
                break
            # Positions after a wrong guess were scored with that guess in their context.
            if number == len(draft) or token != draft[number]:
                break
        rest = self._written.end() if ended is not None else ""
        self._left -= len(tokens)
        if tokens:
            self._session.accept(self.text, tokens)
        sources = self._sources(read, tokens)
        generated = [
            GeneratedToken(
                id=token,
                text=pieces[number],
                probability=float(np.exp(log_p[number, token])),
                attributed=sources[number],
                drafted=number < len(draft) and token == draft[number],
            )
            for number, token in enumerate(tokens)
        ]
        return GenerationStep(self._number, generated, rest, ended)

    def _sample(self, log_p: np.ndarray) -> int:
        """A token drawn from a distribution [V]."""
        request = self._wanted
        distribution = probabilities(log_p, request.temperature, request.top_k, request.top_p)
        return draw(distribution, self._random)

    def _sources(self, read: Distributions, tokens: Sequence[int]) -> Sequence[Attributed | None]:
        if self._attribution is None:
            return [None] * len(tokens)
        return self._attribution.of(read.scored_range, tokens)


def stops_at_end(reader: MemoryReader, request: GenerationRequest) -> bool:
    """Whether a text ends where the model ends it."""
    if request.stop_at_eos is not None:
        return request.stop_at_eos
    return reader.range_reader.model.config.ends_texts


def ends_of(reader: MemoryReader) -> frozenset[int]:
    """Tokens that end a text: `<eos>`, and those that an imported model names as its own."""
    return reader.range_reader.model.config.end_tokens | {reader.text.eos}
