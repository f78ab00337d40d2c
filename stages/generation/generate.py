"""Writing text token by token."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation.request import GenerationRequest
from stages.generation.sampling import draw, probabilities
from stages.generation.stream import Attributed, Attribution, Stream
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Request, find
from stages.models.config import model_of

STRIDE = 1
"""A backbone without state always reads as many tokens back as its context holds."""


@dataclass(frozen=True)
class GeneratedToken:
    """One more token, with its probability by the model and its memories, before temperature and cuts."""

    id: int
    probability: float
    attributed: Attributed | None


def open_writer(request: Request, store: Store) -> MemoryReader:
    """The model and memories that a request names, for writing. Raises: UsageError for a model that translates."""
    found = find(request, store, None, stride=STRIDE)
    model = found.read["model"]
    if model_of(model).reads.source:
        raise UsageError(f"{model.reference} translates: use memlm translate {request.source}.")
    return load_reader(found, request)


def generate(reader: MemoryReader, wanted: GenerationRequest) -> Iterator[GeneratedToken]:
    """Tokens behind the prompt, one by one; the same seed gives the same tokens. An `<eos>` that stops is left out."""
    stream = Stream(reader, reader.text.ids(wanted.prompt))
    attribution = Attribution(stream.reader, stream.passage) if wanted.attribute else None
    random = np.random.default_rng(wanted.seed)
    for _ in range(wanted.max_tokens):
        scored_range = stream.read_range()
        log_p = stream.log_probs(scored_range)
        token = draw(probabilities(log_p, wanted.sampling), random)
        if wanted.stop_at_eos and token == reader.text.eos:
            return
        stream.put(token)
        found = None if attribution is None else attribution.of(scored_range, token)
        yield GeneratedToken(token, float(np.exp(log_p[token])), found)
