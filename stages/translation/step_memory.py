"""Memory that is read at every step of beam search, with one retrieval for the rows of all
sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import Places
from stages.encoding.key_encoder import search_keys
from stages.encoding.scoring import SMALLEST, LMScores
from stages.retrieval.neighbors import StepSearch
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.weights.policy import WeightPolicy
from stages.translation.decoder import Step

NOWHERE = Places(np.zeros(0, np.int64), [])


class Evidence(NamedTuple):
    """Sources of the probabilities of a translation's tokens, [n] each."""

    log_p_model: Tensor
    """Log-probability by the model alone, in nats."""
    log_p: Tensor
    """Log-probability with memory read."""
    row: Tensor
    """Datastore row of the neighbour with the largest weight that holds the token; -1 if no
    neighbour holds it.
    """
    share: Tensor
    """Share of that neighbour in the weight of all neighbours that hold the token."""


@dataclass
class StepMemory:
    """Reads the neighbours of each row's key, with weights from a policy.

    Source: Khandelwal et al. 2021 (kNN-MT, arXiv:2010.00710), section 2.
    """

    policy: WeightPolicy
    search: StepSearch
    dtype: torch.dtype
    """Dtype of the stored keys, to which queries are rounded."""
    searches: int = field(default=0, init=False)
    """Number of queries so far."""

    def begin(self, numbers: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Set the sentences of the next batch: their numbers in the split, and the tokens of their
        sources.
        """
        self.search.begin(numbers, sources)

    def __call__(self, step: Step, sentences: Tensor) -> Tensor:
        """Log-probabilities of every token with memory read; see `ReadMemory`."""
        return self.policy.dense(self._retrieve(step, sentences), step.log_probs.float())

    def evidence(self, step: Step, sentences: Tensor, targets: Tensor) -> Evidence:
        """Evidence for the tokens `targets`, int64 [R], that follow each row."""
        block = self._retrieve(step, sentences, targets)
        point = self.policy.points[-1]
        parts = []
        for rows, retrieved in self.policy.reading_row.retrieve(block):
            log_p = self.policy.read(block, rows, retrieved).log_p
            last = retrieved[-1].parts[-1]
            assert last.ids is not None, "neighbours of a datastore are the last part"
            right = last.entries.values == targets[rows, None]
            logits = last.logits(point.scale, point.cutoff).masked_fill(~right, -torch.inf)
            weights = logits.softmax(-1).nan_to_num(nan=0.0)
            share, best = weights.max(-1)
            parts.append(
                (log_p, torch.where(share > 0, last.ids.gather(1, best[:, None])[:, 0], -1), share)
            )
        return Evidence(block.lm.log_p, *map(torch.cat, zip(*parts, strict=True)))

    def _retrieve(
        self, step: Step, sentences: Tensor, targets: Tensor | None = None
    ) -> ScoredRange:
        """Search for all rows together."""
        queries = search_keys(step.key.to(self.dtype))
        context = self._context(step) if self.policy.needs.context else None
        where = self.policy.searches_where
        opened = None if where is None or context is None else where.worth(context.cpu()).numpy()
        self.searches += len(queries) if opened is None else int(opened.sum())
        neighbors = self.search.search(queries, sentences.cpu().numpy(), opened)
        targets = torch.zeros_like(step.tokens) if targets is None else targets
        log_p = step.log_probs.gather(1, targets[:, None])[:, 0].float()
        scored = LMScores(
            0, targets, log_p, log_p if step.log_z is None else step.log_z, {}, {}, None, None
        )
        return ScoredRange(scored, CarriedState(0), NOWHERE, None, neighbors, queries, context)

    def _context(self, step: Step) -> Tensor:
        """Features of each context, float [R, 3]: those of
        `stages.retrieval.weights.learned.CONTEXT`.
        """
        log_p = step.log_probs
        entropy = -(log_p.exp() * log_p.clamp(min=SMALLEST)).sum(-1)
        frequency = self.policy.row.sources[-1].token_counts
        assert frequency is not None, "weights of each context are learned for an index"
        counts = (
            frequency[step.tokens.to(frequency.device).clamp(max=len(frequency) - 1)]
            .float()
            .log1p()
        )
        return torch.stack((log_p.amax(-1), entropy, counts.to(log_p)), -1)
