"""Weights learned by a small network from the model's confidence, the previous token, and the
neighbours.

Also adaptive k and λ: for each context a distribution over reading none, or its nearest 1, 2, 4, …
neighbours.

Shapes: n positions, k entries, best first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn.functional import pad

from stages.memory.choice_network import (
    ChoiceNetwork,
    ChoicePositions,
    beginning,
    fit_choice,
    mixed,
)
from stages.memory.hyperparameter import doubling_cutoffs
from stages.memory.predicted_gain import PredictedGain
from stages.memory.weight_network import Positions, WeightNetwork, fit_weight, learn
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.grid import TUNE
from stages.retrieval.weights.per_context import WEIGH, OnPositions, PerContext
from stages.retrieval.weights.policy import Pass, Reads, Record, Shares, Weight, compose_dense

ENTRIES = 64
"""Number of best entries used for features."""
POSITIONS = 512
"""Positions processed together: each pair of their entries is compared."""
RANKS = (2, 4, 8, 16, 32, ENTRIES)
FARTHEST = 20.0
"""Nats below the best beyond which an entry counts as missing."""
CONTEXT = ("log of the largest probability", "entropy", "log of 1 + count of the token before")
"""Features that are known before a memory is searched, all from the model's own distribution but
the count in the datastore."""
NEIGHBORS = (
    "score of the best",
    *(f"log of 1 + distance of entry {rank} from the best" for rank in RANKS),
    *(f"log of the number of tokens among the best {rank}" for rank in RANKS),
    "log of the memory's largest probability",
    "entropy of the memory",
)
SHARES = tuple(tenth / 10 for tenth in range(1, 10))
"""Shares of searched tokens at which perplexity is reported."""


@dataclass(frozen=True)
class Learned(PerContext):
    """A weight for each context by a network; for a lone memory also the cost of fewer searches.

    Source: He, Neubig and Berg-Kirkpatrick 2021 (Efficient Nearest Neighbor Language Models,
    arXiv:2109.04212), adaptive retrieval; see `stages.memory.weight_network`.
    """

    needs: ClassVar[Needs] = Needs(context=True)
    fitted: ClassVar[type[Any]] = WeightNetwork
    features: ClassVar[int] = len(CONTEXT) + len(NEIGHBORS)

    def inputs(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved
    ) -> Float[Tensor, "n f"]:
        """The inputs of `CONTEXT` and `NEIGHBORS`; those of neighbours are 0 if there are none."""
        assert block.context is not None, "a pass that learns weights knows the contexts"
        point = self.best[-1]
        read = neighbor_inputs(*retrieved.scored(point.cutoff, point.scale))
        return torch.cat((block.context[rows], read), -1).double()

    def fit(self, positions: Positions, weight: float) -> WeightNetwork:
        return fit_weight(positions, weight)

    # Searches

    @cached_property
    def gains(self) -> PredictedGain | None:
        """Expected gains of searches; None if they are not reported, or not known yet."""
        record = self.choices.get(WEIGH.name, {}).get("gate")
        return None if record is None else PredictedGain.of_record(record)

    def search_gains(self, positions: Positions, log_p: Float[Tensor, " n"]) -> Record | None:
        if len(self.row.sources) > 1:
            return None
        searched = self.row.searched
        shares = [
            *(share for share in SHARES if share < searched),
            *([searched] if searched < 1 else []),
        ]
        contexts = positions.inputs[:, : len(CONTEXT)]
        return {
            **PredictedGain.fitted(contexts, log_p - positions.log_p, shares).record,
            "searched": searched,
        }

    def read(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Reads:
        reads = super().read(block, rows, retrieved)
        if self.gains is None:
            return reads
        assert block.context is not None
        by_gain = self.gains.sums(block.context[rows], reads.log_p, block.lm.log_p[rows])
        return reads._replace(sums={**reads.sums, "by_gain": by_gain.cpu().numpy()})

    def no_sums(self) -> Mapping[str, np.ndarray]:
        none = super().no_sums()
        return (
            none
            if self.gains is None
            else {**none, "by_gain": np.zeros((len(self.gains.shares), 2))}
        )


def neighbor_inputs(
    scores: Float[Tensor, "n k"], values: Integer[Tensor, "n k"]
) -> Float[Tensor, "n f"]:
    """The inputs of `NEIGHBORS`; scores s/τ in any order, −inf where missing."""
    parts = zip(scores.split(POSITIONS), values.split(POSITIONS), strict=True)
    return torch.cat([_neighbor_inputs(*part) for part in parts])


def _neighbor_inputs(scores: Tensor, values: Tensor) -> Tensor:
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    scores, values = scores[:, :ENTRIES], values.gather(1, order[:, :ENTRIES])
    missing = ENTRIES - scores.shape[1]
    scores = pad(scores, (0, missing), value=-torch.inf)
    values = pad(values, (0, missing), value=-1)
    present, ranks = ~scores.isneginf(), torch.tensor(RANKS, device=scores.device) - 1
    # for the network a missing entry must be finite, and farther than any real one
    distances = torch.where(present, scores[:, :1] - scores, FARTHEST).clamp(max=FARTHEST)
    alike = (values[:, :, None] == values[:, None, :]) & present[:, None, :]
    inputs = (
        scores[:, :1],
        distances[:, ranks].log1p(),
        _distinct(alike, present)[:, ranks].log(),
        *_confidence((-distances).exp() * present, alike),
    )
    return torch.where(present[:, :1], torch.cat(inputs, -1), 0.0)


def _distinct(alike: Bool[Tensor, "n k k"], present: Bool[Tensor, "n k"]) -> Tensor:
    """Numbers of distinct tokens among the first 1 to k entries, [n, k]."""
    first = present & ~alike.tril(-1).any(-1)
    return first.cumsum(-1)


def _confidence(
    weights: Float[Tensor, "n k"], alike: Bool[Tensor, "n k k"]
) -> tuple[Tensor, Tensor]:
    """log of the largest probability of a token, and entropy in nats, both [n, 1], of a memory of
    these entries.
    """
    shares = weights / weights.sum(-1, keepdim=True)
    tokens = (alike * shares[:, None, :]).sum(-1)
    entropy = -(shares * tokens.clamp(min=torch.finfo(tokens.dtype).tiny).log()).sum(
        -1, keepdim=True
    )
    return tokens.amax(-1, keepdim=True).log(), entropy


@dataclass(frozen=True)
class Searched(Learned):
    """The weights of `Learned`; without a search the model's own distribution is used.

    Source: He, Neubig and Berg-Kirkpatrick 2021 (arXiv:2109.04212), adaptive retrieval; see
    `PredictedGain`.
    """

    @property
    def searches_where(self) -> PredictedGain | None:
        return self.gains


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
        log_p, sums = self.others(block, rows, retrieved), self._sums(retrieved[-1])
        found = ChoicePositions(self._inputs(retrieved[-1]), log_p.double(), sums.T.double())
        return found.taken(~self._empty(retrieved[-1]))

    def learnt(self, positions: ChoicePositions) -> Record:
        point = self.best[-1]
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

    def read(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Reads:
        if self.model is None:
            return super().read(block, rows, retrieved)
        log_p, last = self.others(block, rows, retrieved), retrieved[-1]
        sums = self._sums(last)
        read = mixed(log_p, sums.to(log_p), self.model.outputs(self._inputs(last)).to(log_p.device))
        # the network has no features for a context that finds nothing
        read = torch.where(self._empty(last), log_p, read)
        memories = [
            one.log_sums([p.scale], [p.cutoff]).at(0, 0).log_prob
            for one, p in zip(retrieved, self.points, strict=True)
        ]
        numbers = super().weights(block, rows, retrieved)
        return Reads(read, torch.stack(memories, -1), numbers, self.no_sums())

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
        last, scale = retrieved[-1], self.points[-1].scale
        found = [last.held(rows, scale, number) for number in self.numbers]
        tokens, sums = (
            found[0].tokens,
            torch.stack([one.log_sums.log_prob for one in found]).to(log_p),
        )
        logits = self.model.outputs(self._inputs(last)[rows]).to(log_p.device)
        held = mixed(log_p.gather(1, tokens), sums, logits)
        read = (log_p + logits.log_softmax(-1)[:, :1].to(log_p)).scatter_(1, tokens, held)
        return torch.where(self._empty(last)[rows, None], log_p, read)

    def shares(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> list[Shares]:
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
        return (
            {} if chosen is None else {"choice-network.json": {"numbers": self.numbers, **chosen}}
        )

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
        return retrieved.log_sums([1.0], [self.numbers[-1]]).at(0, 0).empty

    def _inputs(self, retrieved: Retrieved) -> Tensor:
        """Features of each context, float64 [n, INPUTS]."""
        read = retrieved.scored(self.numbers[-1], self.best[-1].scale)
        return neighbor_inputs(*read)[:, :INPUTS].double()
