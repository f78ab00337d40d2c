"""Four conditions on the readings of an evaluation, checked while it runs.

1. A probability depends on the past alone.
2. The probabilities of all tokens add up to 1.
3. A token is scored before anything learns it.
4. The text is read once.

For each position a short passage is read again, with other tokens from the position on. Scores
before it must stay, and so must the distribution at the position. That distribution must give the
true token the score that the evaluation reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.figures.conditions import PASSAGE
from stages.evaluation.range_reader import RangeOptions, RangeReader, RangeResult
from stages.evaluation.score_range import RangeScores
from stages.examples.other_future import with_other_future
from stages.memory.predicted_gain import PredictedGain
from stages.metrics import finite
from stages.retrieval.weights.policy import WeightPolicy


class Reread(NamedTuple):
    """A passage that was read again: every row's scores and distributions, the model alone first."""

    log_p: Tensor
    """Log-probabilities of its tokens, float64 [rows, n], in nats."""
    distributions: Tensor
    """Log-probabilities of every token at some of its positions, float32 [rows, c, V]."""


@dataclass(frozen=True)
class ConditionCheck:
    """Checks the conditions at the beginning of a range, from the state before it."""

    reader: RangeReader
    policies: Sequence[WeightPolicy]
    """The policy of each row of memory."""
    split: str
    where: PredictedGain | None
    """Predictor of the tokens to search for, as in the evaluation."""
    contexts: bool
    """Whether features of contexts are computed, as in the evaluation."""

    def record(self, result: RangeResult, scores: RangeScores, count: int) -> dict[str, Any]:
        """The largest differences at `count` positions of a range, JSON; see `figures.conditions`.

        None stands for a difference that is not finite.

        Args:
            count: at least 1.
            result: the range as the evaluation read it.
            scores: its scores in the evaluation.
        """
        lm = result.scored_range.lm
        length = min(max(PASSAGE, count), len(lm))
        places = checked_places(length, count)
        reported = self._reported(result, scores)
        as_it_is = self._read_again(result, length, length, places)

        future = torch.zeros(len(reported), dtype=torch.float64)
        score = torch.zeros_like(future)
        for number, place in enumerate(places):
            changed = self._read_again(result, length, int(place), places[number : number + 1])
            earlier = _difference(changed.log_p[:, :place], as_it_is.log_p[:, :place])
            here = changed.distributions[:, 0]
            same = _difference(here, as_it_is.distributions[:, number])
            future = torch.stack((future, earlier, same)).amax(0)
            # Without the token in sight, it must be as probable as the evaluation said.
            probability = here[:, lm.targets[place], None]
            score = torch.maximum(score, _difference(probability, reported[:, place, None]))

        totals = as_it_is.distributions.double().exp().sum(-1)
        distance = (totals - 1).abs().amax(-1)
        return {
            "positions": len(places),
            "future": _finite_numbers(future),
            "sum": _finite_numbers(distance),
            "score": _finite_numbers(score),
        }

    def _reported(self, result: RangeResult, scores: RangeScores) -> Tensor:
        """The log-probabilities that the evaluation reports, [rows, n]; NaN where none counts."""
        lm = result.scored_range.lm
        rows = [scores.alone, *scores.rows]
        reported = torch.full((len(rows), len(lm)), torch.nan, dtype=torch.float64)
        reported = reported.to(lm.log_p.device)
        reported[:, result.scored_range.counted_rows] = torch.stack(
            [row.log_p.double() for row in rows]
        )
        return reported

    def _read_again(
        self, result: RangeResult, length: int, change: int, places: np.ndarray
    ) -> Reread:
        """The first `length` tokens of a range, with other tokens from `change` on.

        Args:
            places: positions whose distributions are kept, int64 [c].
        """
        carried = result.scored_range.carried
        start = carried.start
        stop = carried.start + length
        corpus = with_other_future(
            self.reader.split_reader.corpus,
            self.split,
            start + change,
            stop,
            int(self.reader.model.config.vocab_size or 0),
        )
        reader = replace(self.reader.of_corpus(corpus), last_words=None)
        is_checked = torch.zeros(length, dtype=torch.bool, device=reader.split_reader.device)
        is_checked[places] = True
        options = RangeOptions(contexts=self.contexts, where=self.where, distributions=is_checked)
        block = reader.read(self.split, start, stop, carried, options).scored_range

        log_p = [block.lm.log_p]
        for policy in self.policies:
            rows = policy.reading_row.retrieve(block)
            log_p.append(torch.cat([policy.read(block, *part).log_p for part in rows]))

        alone = block.lm.distributions
        assert alone is not None, "they were asked for"
        counted = replace(block, counted=is_checked)
        dense = [policy.dense(counted, alone) for policy in self.policies]
        return Reread(torch.stack(log_p).double(), torch.stack([alone, *dense]))


def checked_places(length: int, count: int) -> np.ndarray:
    """Positions of a passage that are checked, spread evenly over it, int64 [c], c <= `count`.

    >>> checked_places(48, 4).tolist(), checked_places(2, 4).tolist()
    ([0, 16, 31, 47], [0, 1])
    """
    return np.unique(np.linspace(0, length - 1, count).round().astype(np.int64))


def _difference(values: Tensor, others: Tensor) -> Tensor:
    """Largest difference in each row, float64 [rows]; 0 if there is none to compare.

    Args:
        left, right: [rows, n]. Equal infinities do not differ, and NaN is left out.
    """
    unequal = (values.double() - others.double()).abs().masked_fill(values == others, 0.0)
    differences = unequal.nan_to_num(nan=0.0, posinf=torch.inf)
    return (
        differences.amax(-1).cpu()
        if differences.shape[-1]
        else torch.zeros(len(differences)).double()
    )


def _finite_numbers(values: Tensor) -> list[float | None]:
    return [finite(value) for value in values.tolist()]
