"""Adaptive k and λ: for each context a distribution over reading none, or its nearest 1, 2, 4, … neighbours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from stages.memory.choice_network import ChoiceNetwork, ChoicePositions, beginning, fit_choice, mixed
from stages.memory.hyperparameter import doubling_cutoffs
from stages.memory.weight_network import learn
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.grid import TUNE
from stages.retrieval.weights.learned import neighbor_inputs
from stages.retrieval.weights.per_context import OnPositions
from stages.retrieval.weights.policy import Pass, Reads, Record, Shares, Weight, compose_dense

ADAPT = Pass("adapt", "learning k and λ on")
INPUTS = 13
"""Features of `neighbor_inputs` used in the paper: distances, and numbers of distinct tokens among the nearest."""


@dataclass(frozen=True)
class Adaptive(OnPositions):
    """Weights of every number of neighbours for each context, by a network on distances and distinct tokens.

    It starts from the best λ and k for all contexts, and is kept only if it gains on held-out text. Only `interpolate`
    is supported. Source: see `stages.memory.choice_network`.
    """

    passes: ClassVar[tuple[Pass, ...]] = (TUNE, ADAPT)
    step: ClassVar[Pass] = ADAPT
    kind: ClassVar[type[Any]] = ChoicePositions

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers of neighbours that a context chooses from: powers of two, and the best number for all contexts."""
        return sorted({*doubling_cutoffs(self.allowed[-1][-1]), self.best.points[-1].cutoff})

    def restore(self, record: Mapping[str, Any]) -> ChoiceNetwork:
        return ChoiceNetwork.of_record(record)

    # Finding the weights

    def positions(self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]) -> ChoicePositions:
        log_p, sums = self.others(block, rows, retrieved), self._sums(retrieved[-1])
        found = ChoicePositions(self._inputs(retrieved[-1]), log_p.double(), sums.T.double())
        return found.taken(~self._empty(retrieved[-1]))

    def learnt(self, positions: ChoicePositions) -> Record:
        point = self.best.points[-1]
        best = self.numbers.index(point.cutoff)
        for_all = torch.logaddexp(
            torch.log1p(torch.tensor(-point.weight)).double() + positions.log_p,
            torch.tensor(point.weight).double().log() + positions.log_p_mem[:, best],
        )
        offset = beginning(point.weight, best, len(self.numbers))
        learned = learn(positions, point.weight, for_all, lambda some, _: fit_choice(some, offset))
        kept = learned is not None and learned.significant
        return {
            "tokens": len(positions),
            "gains": [] if learned is None else learned.gains,
            "network": learned.network.record if learned is not None and kept else None,
        }

    def scratch_bytes(self, tokens: int) -> int:
        return super().scratch_bytes(tokens) + 4 * tokens * (
            INPUTS + 1 + 2 * len(doubling_cutoffs(self.allowed[-1][-1]))
        )

    # Reading

    def read(self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]) -> Reads:
        if self.model is None:
            return super().read(block, rows, retrieved)
        log_p, last = self.others(block, rows, retrieved), retrieved[-1]
        sums = self._sums(last)
        read = mixed(log_p, sums.to(log_p), self.model.outputs(self._inputs(last)).to(log_p.device))
        # the network has no features for a context that finds nothing
        read = torch.where(self._empty(last), log_p, read)
        memories = [
            one.log_sums([p.scale], [p.cutoff]).at(0, 0).log_prob for one, p in zip(retrieved, self.points, strict=True)
        ]
        numbers = super().weights(block, rows, retrieved)
        return Reads(read, torch.stack(memories, -1), numbers, self.no_sums())

    def read_dense(
        self, log_p: Tensor, log_z: Tensor, retrieved: Sequence[Retrieved], rows: slice, weights: Sequence[Weight]
    ) -> Tensor:
        if self.model is None:
            return super().read_dense(log_p, log_z, retrieved, rows, weights)
        others = (self.grids[:-1], self.points[:-1], weights[:-1])
        log_p = compose_dense(log_p, log_z, retrieved[:-1], rows, *others)
        last, scale = retrieved[-1], self.points[-1].scale
        found = [last.held(rows, scale, number) for number in self.numbers]
        tokens, sums = found[0].tokens, torch.stack([one.log_sums.log_prob for one in found]).to(log_p)
        logits = self.model.outputs(self._inputs(last)[rows]).to(log_p.device)
        held = mixed(log_p.gather(1, tokens), sums, logits)
        read = (log_p + logits.log_softmax(-1)[:, :1].to(log_p)).scatter_(1, tokens, held)
        return torch.where(self._empty(last)[rows, None], log_p, read)

    def shares(self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]) -> list[Shares]:
        if self.model is None:
            return super().shares(block, rows, retrieved)
        last, empty = retrieved[-1], self._empty(retrieved[-1])
        chosen = self.model.outputs(self._inputs(last)).softmax(-1).to(block.lm.log_p)
        kept = torch.where(empty, 1.0, chosen[:, 0])
        read = [last.weights(self.points[-1].scale, number) for number in self.numbers]
        shares = (chosen[:, 1:] / chosen[:, 1:].sum(-1, keepdim=True)).T[..., None]
        mixed = [(shares * torch.stack(some)).sum(0) for some in zip(*read, strict=True)]
        return [*super().shares(block, rows, retrieved)[:-1], Shares(kept, mixed)]

    @property
    def files(self) -> Mapping[str, Record]:
        """The network and its gain, as `choose` returned them."""
        chosen = self.choices.get(ADAPT.name)
        return {} if chosen is None else {"choice-network.json": {"numbers": self.numbers, **chosen}}

    def describe(self, tune_split: str | None) -> list[dict[str, Any]]:
        """The readings; with a network also the numbers of neighbours that it chooses from."""
        described = super().describe(tune_split)
        if self.model is not None:
            described[-1]["numbers"] = self.numbers
        return described

    def _sums(self, retrieved: Retrieved) -> Tensor:
        """log p_mem of the targets for every number of neighbours, [C, n]."""
        return retrieved.log_sums([self.best.points[-1].scale], self.numbers).log_prob[0]

    def _empty(self, retrieved: Retrieved) -> Tensor:
        return retrieved.log_sums([1.0], [self.numbers[-1]]).at(0, 0).empty

    def _inputs(self, retrieved: Retrieved) -> Tensor:
        """Features of each context, float64 [n, INPUTS]."""
        read = retrieved.scored(self.numbers[-1], self.best.points[-1].scale)
        return neighbor_inputs(*read)[:, :INPUTS].double()
