"""The model behind an address: prompts are scored and continued, and tokens are attributed.

Only this module of the room knows how texts are read. All of it runs in the worker's thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.store import Store
from stages.encoding.carried_state import CarriedState
from stages.encoding.scoring import DENSE_SCORES
from stages.generation.generate import Stream, draw, open_writer, probabilities
from stages.inspection.inspect import Inspected, inspect_ids
from stages.inspection.reading import BLOCK_TOKENS, MemoryReader
from stages.inspection.request import PASSAGE, Passage
from stages.inspection.settings import Request
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.source import Needs
from stages.serving.settings import MAX_STREAM
from stages.text.excerpt import TokenText

NONE = "none"
"""Name of the model alone."""


class ScoredToken(NamedTuple):
    """A token, its log-probability in nats, and those of the likeliest tokens, in falling order.

    Both are of one distribution, so the most probable token has exactly the largest number.
    """

    id: int
    log_p: float
    top: tuple[tuple[int, float], ...] = ()


class Sampling(NamedTuple):
    """How tokens are drawn; see `stages.generation.GenerationRequest`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Engine:
    """A model with its memories, and without.

    `readers`: readers that share the model, by the name of the memory.
    """

    readers: Mapping[str, MemoryReader]

    @classmethod
    def open(cls, request: Request, store: Store, memory: str) -> "Engine":
        """Load a model with the memories of a request.

        Args:
            memory: name of these memories.
        Raises: UsageError or ArtifactError if they cannot be read, or the model writes no text.
        """
        reader = open_writer(request, store)
        readers = {memory: reader} if reader.policy is not None else {}
        return cls({**readers, NONE: without_memories(reader)})

    @property
    def plain(self) -> MemoryReader:
        """The model alone."""
        return self.readers[NONE]

    def with_memories(self, memory: str) -> MemoryReader:
        """The model with these memories; alone, if it has none of this name."""
        return self.readers.get(memory, self.plain)

    @property
    def text(self) -> TokenText:
        """The tokenizer."""
        return self.plain.text

    @cached_property
    def label(self) -> Callable[[int], str]:
        """The text of one token by itself, as `TokenText.label`, kept for each."""
        return cache(self.text.label)

    @property
    def start(self) -> int:
        """The token before every text, which the model reads first."""
        return self.plain.range_reader.split_reader.corpus.eos

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text; where `<eos>` ends a line, none does."""
        return frozenset() if self.text.eos_is_newline else frozenset((self.text.eos,))

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest id of a prompt."""
        return min(self.text.vocabulary_size, self.plain.range_reader.model.config.vocab_size or 0)

    @property
    def context(self) -> int:
        """Maximum number of tokens of a prompt."""
        reader = self.plain.range_reader
        if reader.model.config.carries_state:
            return MAX_STREAM
        return reader.split_reader.windows.context

    def behind_start(self, ids: Sequence[int]) -> Sequence[int]:
        """A prompt without the token before every text, which is read in any case."""
        return ids[1:] if ids and ids[0] == self.start else ids

    def score(self, memory: str, ids: Sequence[int], top: int) -> Iterator[list[ScoredToken]]:
        """Score the tokens of a prompt, each behind those before it, block by block.

        Args:
            ids: ids behind the start of a text.
            top: number of likeliest tokens listed for each.
        """
        passage = Passage(ids)
        reader = self.readers[memory].of_passage(passage)
        carried = CarriedState()
        for start in range(0, len(ids), BLOCK_TOKENS):
            stop = min(start + BLOCK_TOKENS, len(ids))
            result = reader.read_range(PASSAGE, start, stop, carried)
            carried = result.after
            yield scored_tokens(reader, result.scored_range, ids[start:stop], top)

    def write(
        self, memory: str, ids: Sequence[int], sampling: Sampling, top: int
    ) -> Iterator[ScoredToken]:
        """Write tokens after a prompt, without end; the same seed writes the same tokens.

        The log-probabilities are those before temperature, top-k and top-p.
        """
        stream = Stream(self.readers[memory], ids)
        random = np.random.default_rng(abs(sampling.seed))
        while True:
            log_p = stream.each_log_probs(stream.read_range())[0]
            drawn_from = probabilities(log_p, sampling.temperature, sampling.top_k, sampling.top_p)
            token = draw(drawn_from, random)
            yield ScoredToken(token, float(log_p[token]), likeliest(log_p, top))
            stream.put(token)

    def attribute(self, memory: str, ids: Sequence[int], contexts: int) -> Inspected:
        """The sources of the probability of each token, and the passages behind it."""
        return inspect_ids(self.readers[memory], ids, contexts)


def without_memories(reader: MemoryReader) -> MemoryReader:
    """The same model alone; a memory in its hidden states stays, as in `--memory none`."""
    alone = replace(reader.range_reader, external=None, needs=Needs(), memories={})
    return replace(reader, range_reader=alone, policy=None, memories=[])


@torch.no_grad()
def scored_tokens(
    reader: MemoryReader, scored_range: ScoredRange, ids: Sequence[int], top: int
) -> list[ScoredToken]:
    """Scores of the tokens `ids` of a range, with all memories read."""
    tokens: list[ScoredToken] = []
    for log_p in dense_blocks(reader, scored_range):
        part = torch.as_tensor(ids[len(tokens) : len(tokens) + len(log_p)], device=log_p.device)
        own = log_p.gather(1, part[:, None])[:, 0].double().tolist()
        tops = _likeliest_rows(log_p, top)
        tokens += map(ScoredToken, part.tolist(), own, tops)
    return tokens


def dense_blocks(reader: MemoryReader, scored_range: ScoredRange) -> Iterator[Tensor]:
    """Log-probabilities of every token at each position, float32 [m, V], for a few positions at a
    time: those of a whole window of a large vocabulary take gigabytes.
    """
    hidden, log_z = scored_range.lm.hidden, scored_range.lm.log_z
    assert hidden is not None, "hidden states are kept where the tokens that count are given"
    model, policy = reader.range_reader.model, reader.policy
    step = max(1, DENSE_SCORES // (model.config.vocab_size or 1))
    if policy is None:
        yield from (model.log_probs(part) for part in hidden.split(step))
        return

    done = 0
    for rows, retrieved in policy.reading_row.retrieve(scored_range):
        weights = policy.weights(scored_range, rows, retrieved)
        own_hidden, own_log_z = hidden[rows], log_z[rows]
        for start in range(0, len(own_log_z), step):
            part = slice(start, start + step)
            alone = model.log_probs(own_hidden[part])
            yield policy.read_dense(alone, own_log_z[part], retrieved, part, weights)
        done += len(own_log_z)
    assert done == len(hidden), "every position of a passage counts"


def _likeliest_rows(log_p: Tensor, top: int) -> list[tuple[tuple[int, float], ...]]:
    """The likeliest tokens of each row, as `likeliest`."""
    if not top:
        return [()] * len(log_p)
    # A sort of whole vocabularies would take longer than the model.
    values, ids = log_p.double().topk(min(top, log_p.shape[-1]), dim=-1)
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return [tuple(zip(*row, strict=True)) for row in rows]


def likeliest(log_p: np.ndarray, top: int) -> tuple[tuple[int, float], ...]:
    """The likeliest tokens and their log-probabilities, [V], in falling order; ties by id.

    >>> likeliest(np.log([0.25, 0.5, 0.25]), 2)[1][0]
    0
    """
    if not top:
        return ()
    order = np.argsort(-log_p, kind="stable")[:top]
    return tuple((int(id), float(log_p[id])) for id in order)
