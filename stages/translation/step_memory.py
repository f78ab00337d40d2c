"""Memory that is read at every step of a search: one search in the datastore for the rows of all sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import Places
from stages.encoding.key_encoder import search_keys
from stages.encoding.scoring import LEAST, LMScores
from stages.lineage.runs import OwnRows
from stages.lineage.sources import PAIRS_SPLIT
from stages.retrieval.neighbors import FoundNeighbors, IndexSearch, Retrieval
from stages.retrieval.pair_search import PairKeys, PairSearch
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.weights.policy import WeightPolicy
from stages.translation.decoder import Step


class StepSearch(Protocol):
    """Finds neighbours for the rows of a batch of sentences."""

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Name the sentences of the next batch, by their numbers in the split, and their tokens."""

    def search(self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None) -> FoundNeighbors:
        """Neighbours of queries float32 [R, d], or of those of them in rows, bool [R]; of the others none.

        Args:
            sentences: of each query within the batch, int64 [R].
        """


@dataclass
class IndexSteps:
    """Searches an index for all rows at once.

    `own`: rows of the split that is translated, if the datastore was made of it: a sentence does not find its own.
    """

    index: IndexSearch
    own: OwnRows | None = None
    _numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), init=False)

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        self._numbers = np.asarray(numbers, np.int64)

    def search(self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None) -> FoundNeighbors:
        return self.index.search(queries, self._forbidden(sentences), rows)

    def _forbidden(self, sentences: np.ndarray) -> np.ndarray | None:
        """Rows of each row's own sentence, int64 [R, 2]."""
        if self.own is None:
            return None
        firsts = self.own.doc_offsets[self._numbers[sentences]].tolist()
        each = [self.own.forbidden("document", first, first + 1) for first in firsts]
        return np.concatenate([one for one in each if one is not None])


@dataclass
class PairSteps:
    """Searches the pairs of each row's sentence.

    `own`: whether sentences are of the split of the pairs, where none finds itself.
    """

    pairs: PairSearch
    own: bool = False
    _found: Sequence[PairKeys] = field(default=(), init=False)

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        self._found = self.pairs.open(sources, np.asarray(numbers, np.int64) if self.own else None)

    def search(self, queries: np.ndarray, sentences: np.ndarray, rows: np.ndarray | None) -> FoundNeighbors:
        assert rows is None, "all rows are searched for"
        return FoundNeighbors(*self.pairs.nearest(queries, sentences, self._found))


def step_search(retrieval: Retrieval, split: str | None = None) -> StepSearch | None:
    """The searches of an evaluation's memory, for sentences of a split, or of none; None: no step can search it."""
    if isinstance(retrieval, IndexSearch):
        return IndexSteps(retrieval, retrieval.own.get(split) if split is not None else None)
    if isinstance(retrieval, PairSearch):
        return PairSteps(retrieval, split == PAIRS_SPLIT)
    return None


NOWHERE = Places(np.zeros(0, np.int64), [])


class Evidence(NamedTuple):
    """Who gave the tokens of a translation their probability, [n] each."""

    log_p_model: Tensor
    """Log-probability by the model alone, in nats."""
    log_p: Tensor
    """Log-probability with memory read."""
    row: Tensor
    """The neighbour that holds the token and weighs most, as a row of the datastore; -1 where none does."""
    share: Tensor
    """Its share of the weight of all neighbours that hold the token."""


@dataclass
class StepMemory:
    """Neighbours of each row's key, read as a policy says.

    Source: Khandelwal et al. 2021 (kNN-MT, arXiv:2010.00710), section 2.
    """

    policy: WeightPolicy
    search: StepSearch
    dtype: torch.dtype
    """Type of the stored keys, which queries are rounded to."""
    searches: int = field(default=0, init=False)
    """Queries so far."""

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Name the sentences of the next batch, by their numbers in the split, and their tokens."""
        self.search.begin(numbers, sources)

    def __call__(self, step: Step, sentences: Tensor) -> Tensor:
        """Log-probabilities of every token with memory read; see `ReadMemory`."""
        return self.policy.dense(self._retrieve(step, sentences), step.log_probs.float())

    def evidence(self, step: Step, sentences: Tensor, targets: Tensor) -> Evidence:
        """Probabilities of the tokens that follow each row, int64 [R], and the neighbours that hold them."""
        block, point, parts = self._retrieve(step, sentences, targets), self.policy.points[-1], []
        for rows, retrieved in self.policy.reading_row.retrieve(block):
            log_p = self.policy.read(block, rows, retrieved).log_p
            last = retrieved[-1].parts[-1]
            assert last.ids is not None, "neighbours of a datastore are the last part"
            right = last.entries.values == targets[rows, None]
            logits = last.logits(point.scale, point.cutoff).masked_fill(~right, -torch.inf)
            weights = logits.softmax(-1).nan_to_num(nan=0.0)
            share, best = weights.max(-1)
            parts.append((log_p, torch.where(share > 0, last.ids.gather(1, best[:, None])[:, 0], -1), share))
        return Evidence(block.lm.log_p, *map(torch.cat, zip(*parts, strict=True)))

    def _retrieve(self, step: Step, sentences: Tensor, targets: Tensor | None = None) -> ScoredRange:
        """Search for all rows at once."""
        queries = search_keys(step.key.to(self.dtype))
        context, where = self._context(step) if self.policy.needs.context else None, self.policy.searches_where
        opened = None if where is None or context is None else where.worth(context.cpu()).numpy()
        self.searches += len(queries) if opened is None else int(opened.sum())
        found = self.search.search(queries, sentences.cpu().numpy(), opened)
        targets = torch.zeros_like(step.tokens) if targets is None else targets
        log_p = step.log_probs.gather(1, targets[:, None])[:, 0].float()
        scored = LMScores(0, targets, log_p, log_p if step.log_z is None else step.log_z, {}, {}, None, None)
        return ScoredRange(scored, CarriedState(0), NOWHERE, None, found, queries, context)

    def _context(self, step: Step) -> Tensor:
        """Features of each context, float [R, 3]: those of `stages.retrieval.weights.learned.CONTEXT`."""
        log_p = step.log_probs
        entropy = -(log_p.exp() * log_p.clamp(min=LEAST)).sum(-1)
        source = self.policy.row.sources[-1]
        frequency = source.datastore.token_counts  # type: ignore[attr-defined]
        counts = frequency[step.tokens.to(frequency.device).clamp(max=len(frequency) - 1)].float().log1p()
        return torch.stack((log_p.amax(-1), entropy, counts.to(log_p)), -1)
