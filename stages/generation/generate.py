"""Text generation token by token, by a model with its memories."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation import GenerationRequest
from stages.generation.attribution import Attributed, Attribution
from stages.generation.drafts import draft_exact
from stages.generation.sampling import draw, probabilities
from stages.generation.session import TextSession
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Request, find
from stages.lineage.indexes import EXACT
from stages.models.config import model_of


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

    Windows are those in which text is written: see `stages.inspection.request.find`.
    Raises: UsageError for a translation model.
    """
    roles = (EXACT,) if draft != "none" else ()
    found = find(request, store, None, writes=True, roles=roles)
    model = found.read["model"]
    if model_of(model).reads.source:
        raise UsageError(f"{model.reference} translates: use memlm translate {request.source}.")
    return load_reader(found, request)


def generate(reader: MemoryReader, wanted: GenerationRequest) -> Iterator[GeneratedToken]:
    """Yield the tokens after the prompt, one by one; deterministic for a seed. An `<eos>` that
    stops is left out.
    """
    session = TextSession(reader)
    text = session.add(reader.text.prompt_ids(wanted.prompt))
    attribution = Attribution(reader, text) if wanted.attribute else None
    random, left = np.random.default_rng(wanted.seed), wanted.max_tokens
    while left:
        draft = [] if wanted.draft == "none" else draft_exact(reader, text, left - 1)
        (distributions,) = session.read([(text, draft)])
        tokens = list[int]()
        log_p = distributions.log_p.double().cpu().numpy()
        for number, row in enumerate(log_p):
            token = draw(probabilities(row, wanted.temperature, wanted.top_k, wanted.top_p), random)
            if wanted.stop_at_eos and token == reader.text.eos:
                break
            tokens.append(token)
            # Positions after a wrong guess were scored with that guess in their context.
            if number == len(draft) or token != draft[number]:
                break
        ends = len(tokens) == number
        if tokens:
            session.accept(text, tokens)
        sources = (
            attribution.of(distributions.scored_range, tokens)
            if attribution is not None and tokens
            else [None] * len(tokens)
        )
        for number, (token, attributed) in enumerate(zip(tokens, sources, strict=True)):
            right = number < len(draft) and token == draft[number]
            yield GeneratedToken(token, float(np.exp(log_p[number, token])), attributed, right)
        left -= len(tokens)
        if ends:
            return
