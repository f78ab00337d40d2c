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
        log_probs = []
        best_rows = []
        shares = []
        for rows, retrieved in self.policy.reading_row.retrieve(block):
            neighbors = retrieved[-1].parts[-1]
            assert neighbors.ids is not None, "neighbours of a datastore are the last part"

            # The weights of the neighbours that hold the target, [n, k]; a row without any is NaN.
            holds_target = neighbors.entries.values == targets[rows, None]
            logits = neighbors.logits(point.scale, point.cutoff)
            logits = logits.masked_fill(~holds_target, -torch.inf)
            weights = logits.softmax(-1).nan_to_num(nan=0.0)

            share, best = weights.max(-1)
            best_ids = neighbors.ids.gather(1, best[:, None])[:, 0]
            log_probs.append(self.policy.read(block, rows, retrieved).log_p)
            best_rows.append(torch.where(share > 0, best_ids, -1))
            shares.append(share)
        return Evidence(
            block.lm.log_p, torch.cat(log_probs), torch.cat(best_rows), torch.cat(shares)
        )

    def _retrieve(
        self, step: Step, sentences: Tensor, targets: Tensor | None = None
    ) -> ScoredRange:
        """Search for all rows together.

        Args:
            targets: int64 [R]; None: not known yet, since all tokens are scored.
        """
        queries = search_keys(step.key.to(self.dtype))
        context = self._context(step) if self.policy.needs.context else None

        # Contexts that are searched for, bool [R]; None: all.
        is_searched = None
        where = self.policy.searches_where
        if where is not None and context is not None:
            is_searched = where.worth(context.cpu()).numpy()
        self.searches += len(queries) if is_searched is None else int(is_searched.sum())
        neighbors = self.search.search(queries, sentences.cpu().numpy(), is_searched)

        if targets is None:
            targets = torch.zeros_like(step.tokens)
        log_p = step.log_probs.gather(1, targets[:, None])[:, 0].float()
        # A reader that needs no normalizers never looks at them.
        log_z = log_p if step.log_z is None else step.log_z
        scores = LMScores(0, targets, log_p, log_z, {}, {}, None, None)
        return ScoredRange(scores, CarriedState(0), NOWHERE, None, neighbors, queries, context)

    def _context(self, step: Step) -> Tensor:
        """Features of each context, float [R, 3]: those of
        `stages.retrieval.weights.learned.CONTEXT`.
        """
        log_p = step.log_probs
        # 0 · -inf would be NaN.
        entropy = -(log_p.exp() * log_p.clamp(min=SMALLEST)).sum(-1)

        frequency = self.policy.row.sources[-1].token_counts
        assert frequency is not None, "weights of each context are learned for an index"
        # Tokens that the text never had share its last count.
        tokens = step.tokens.to(frequency.device).clamp(max=len(frequency) - 1)
        log_counts = frequency[tokens].float().log1p().to(log_p)
        return torch.stack((log_p.amax(-1), entropy, log_counts), -1)
