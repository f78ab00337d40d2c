"""Policy `adaptive`: for each context a distribution over reading none, or its nearest 1, 2, 4, …
neighbours.

Shapes: n positions, k entries, best first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from stages.memory.choice_network import (
    ChoiceNetwork,
    ChoicePositions,
    fit_choice,
    initial_logits,
    mix,
)
from stages.memory.hyperparameter import doubling_cutoffs
from stages.memory.weight_network import learn
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.composition import Weight, compose_dense
from stages.retrieval.weights.grid import TUNE
from stages.retrieval.weights.learned import neighbor_inputs
from stages.retrieval.weights.per_context import OnPositions
from stages.retrieval.weights.policy import Pass, ReadResult, Record, Shares

ADAPT = Pass("adapt", "learning k and λ on")
INPUTS = 13
"""Features of `neighbor_inputs` used in the paper: distances, and numbers of distinct tokens among
the nearest.
"""


@dataclass(frozen=True)
class Adaptive(OnPositions):
    """Weights of every number of neighbours for each context, by a network on distances and
    distinct tokens.

    It starts from the best λ and k for all contexts, and is kept only if it gains on held-out text.
    Only `interpolate` is supported. Source: see `stages.memory.choice_network`.
    """

    passes: ClassVar[tuple[Pass, ...]] = (TUNE, ADAPT)
    step: ClassVar[Pass] = ADAPT
    kind: ClassVar[type[Any]] = ChoicePositions
    fitted: ClassVar[type[Any]] = ChoiceNetwork

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers of neighbours that a context chooses from: powers of two, and the best number for
        all contexts.
        """
        return sorted({*doubling_cutoffs(self.allowed[-1][-1]), self.best[-1].cutoff})

    # Finding the weights

    def positions(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> ChoicePositions:
        last = retrieved[-1]
        log_p = self.others(block, rows, retrieved)
        log_p_mem = self._sums(last).T  # [n, C]
        positions = ChoicePositions(self._inputs(last), log_p.double(), log_p_mem.double())
        return positions.select(~self._empty(last))

    def learnt(self, positions: ChoicePositions) -> Record:
        """The network, if it gains over the best number and weight for all contexts."""
        point = self.best[-1]
        best = self.numbers.index(point.cutoff)
        # In float32 first: the digits of 1 - λ are those with which the reading is scored.
        model_part = torch.log1p(torch.tensor(-point.weight)).double() + positions.log_p
        memory_part = torch.tensor(point.weight).double().log() + positions.log_p_mem[:, best]
        one_for_all = torch.logaddexp(model_part, memory_part)

        offset = initial_logits(point.weight, best, len(self.numbers))
        learned = learn(
            positions, point.weight, one_for_all, lambda part, _: fit_choice(part, offset)
        )
        network = learned.network if learned is not None and learned.significant else None
        return {
            "tokens": len(positions),
            "gains": [] if learned is None else learned.gains,
            "network": None if network is None else network.record,
        }

    def scratch_bytes(self, tokens: int) -> int:
        # Inputs, log p by the model, and log p by each number of neighbours, in float32. At most
        # twice as many numbers as there are powers of two.
        num_memories = 2 * len(doubling_cutoffs(self.allowed[-1][-1]))
        token_bytes = 4 * (INPUTS + 1 + num_memories)
        return super().scratch_bytes(tokens) + tokens * token_bytes

    # Reading

    def read(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> ReadResult:
        if self.model is None:
            return super().read(block, rows, retrieved)
        last = retrieved[-1]
        log_p = self.others(block, rows, retrieved)
        logits = self.model.outputs(self._inputs(last)).to(log_p.device)
        mixture = mix(log_p, self._sums(last).to(log_p), logits)
        # The network has no features for a context that finds nothing.
        log_p = torch.where(self._empty(last), log_p, mixture)

        log_p_mem = []
        for entries, point in zip(retrieved, self.points, strict=True):
            log_sums = entries.log_sums([point.scale], [point.cutoff]).at(0, 0)
            log_p_mem.append(log_sums.log_prob)
        weights = super().weights(block, rows, retrieved)
        return ReadResult(log_p, torch.stack(log_p_mem, -1), weights, self.no_sums())

    def read_dense(
        self,
        log_p: Tensor,
        log_z: Tensor,
        retrieved: Sequence[Retrieved],
        rows: slice,
        weights: Sequence[Weight],
    ) -> Tensor:
        if self.model is None:
            return super().read_dense(log_p, log_z, retrieved, rows, weights)
        log_p = compose_dense(log_p, log_z, self.composition(retrieved, weights[:-1]), rows)
        last = retrieved[-1]
        scale = self.points[-1].scale
        stored = [last.stored_tokens(rows, scale, number) for number in self.numbers]
        # Columns are the tokens of all entries, whatever number of them is read.
        tokens = stored[0].tokens
        sums = torch.stack([memory.log_sums.log_prob for memory in stored]).to(log_p)

        logits = self.model.outputs(self._inputs(last)[rows]).to(log_p.device)
        log_p_stored = mix(log_p.gather(1, tokens), sums, logits)
        # A token that no neighbour holds gets the share of reading none.
        log_p_others = log_p + logits.log_softmax(-1)[:, :1].to(log_p)
        mixture = log_p_others.scatter_(1, tokens, log_p_stored)
        return torch.where(self._empty(last)[rows, None], log_p, mixture)

    def shares(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> list[Shares]:
        if self.model is None:
            return super().shares(block, rows, retrieved)
        last = retrieved[-1]
        scale = self.points[-1].scale
        # Column 0 is the choice of reading none, column c > 0 that of `numbers[c - 1]` neighbours.
        choices = self.model.outputs(self._inputs(last)).softmax(-1).to(block.lm.log_p)
        share_of_model = torch.where(self._empty(last), 1.0, choices[:, 0])

        # Of what the memory gets, the share of each number of neighbours, [C, n, 1].
        memory_choices = choices[:, 1:]
        number_shares = memory_choices / memory_choices.sum(-1, keepdim=True)
        number_shares = number_shares.T[..., None]

        # For each number of neighbours, the weights of entries in every part, [n, k].
        weights_by_number = [last.weights(scale, number) for number in self.numbers]
        entries = []
        for weights_of_part in zip(*weights_by_number, strict=True):
            weights = torch.stack(weights_of_part)  # [C, n, k]
            entries.append((number_shares * weights).sum(0))

        earlier_readings = super().shares(block, rows, retrieved)[:-1]
        return [*earlier_readings, Shares(share_of_model, entries)]

    @property
    def files(self) -> Mapping[str, Record]:
        """The network and its gain, as `choose` returned them."""
        choice = self.choices.get(ADAPT.name)
        if choice is None:
            return {}
        return {"choice-network.json": {"numbers": self.numbers, **choice}}

    def describe(self, tune_split: str | None) -> list[dict[str, Any]]:
        """The readings; with a network also the numbers of neighbours that it chooses from."""
        described = super().describe(tune_split)
        if self.model is not None:
            described[-1]["numbers"] = self.numbers
        return described

    def _sums(self, retrieved: Retrieved) -> Tensor:
        """log p_mem of the targets for every number of neighbours, [C, n]."""
        return retrieved.log_sums([self.best[-1].scale], self.numbers).log_prob[0]

    def _empty(self, retrieved: Retrieved) -> Tensor:
        """Whether each context retrieves nothing, bool [n]."""
        return retrieved.log_sums([1.0], [self.numbers[-1]]).at(0, 0).empty

    def _inputs(self, retrieved: Retrieved) -> Tensor:
        """Features of each context, float64 [n, INPUTS]."""
        read = retrieved.scored(self.numbers[-1], self.best[-1].scale)
        return neighbor_inputs(*read)[:, :INPUTS].double()
