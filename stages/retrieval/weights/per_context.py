"""A weight of the last memory for each context, by a model that is fitted on the tuning split."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.entries import LogSums
from stages.memory.weight_network import ContextWeights, WeightPositions, learn
from stages.retrieval.grids import Point
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.composition import Weight, compose
from stages.retrieval.weights.grid import TUNE, Grid
from stages.retrieval.weights.policy import Arrays, Pass, Record
from stages.threads import thread_pool

WEIGH = Pass("weigh", "learning weights on", contexts=True)


@dataclass(frozen=True)
class OnPositions(Grid):
    """A grid, and a second pass that collects features of all positions with entries, to fit a
    model.
    """

    step: ClassVar[Pass]
    kind: ClassVar[type[Any]] = WeightPositions
    """Class of the positions: tensors [n, …] by name, with methods `concat` and `select`."""

    @property
    @abstractmethod
    def fitted(self) -> type[Any]:
        """Class of the fitted model, with a method `of_record`; an attribute of the subclass."""

    @abstractmethod
    def positions(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Any:
        """Features of some rows of a range, and log p of their targets, for rows that retrieve
        something.
        """

    @abstractmethod
    def learnt(self, positions: Any) -> Record:
        """The choice that follows from all positions; its `network` is the record of the model, if
        it is used.
        """

    @cached_property
    def model(self) -> Any:
        """The model that gives the weights; None if one number serves all contexts, or if none is
        fitted yet.
        """
        record = self.choices.get(self.step.name, {}).get("network")
        return None if record is None else self.fitted.of_record(record)

    def others(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Tensor:
        """log p of the targets [n] with all readings but the last."""
        log_p = block.lm.log_p[rows]
        weights = [point.weight for point in self.points[:-1]]
        if not weights:
            return log_p
        log_z = block.lm.log_z[rows]
        composed, _ = compose(log_p, log_z, self.composition(retrieved, weights))
        return composed

    def observe(self, step: str, block: ScoredRange) -> Arrays:
        """Observe as a grid does; in the second pass, leave the positions."""
        if step != self.step.name:
            return super().observe(step, block)
        parts = []
        for rows, retrieved in self.row.retrieve(block):
            parts.append(self.positions(block, rows, retrieved))
        if not parts:
            return {}
        tensors = vars(self.kind.concat(parts))
        return {name: tensor.float().cpu().numpy() for name, tensor in tensors.items()}

    def choose(self, step: str, observed: Iterable[Arrays]) -> Record:
        if step != self.step.name:
            return super().choose(step, observed)
        parts = []
        for arrays in observed:
            # A range without a counted token has no arrays.
            if arrays:
                tensors = {name: torch.from_numpy(array).double() for name, array in arrays.items()}
                parts.append(self.kind(**tensors))
        # One thread: with several, sums would differ in the last digits.
        with thread_pool(small=True):
            return self.learnt(self.kind.concat(parts))

    def describe(self, tune_split: str | None) -> list[dict[str, Any]]:
        """The readings with the best numbers for all contexts, and a note that the last has others
        for each.
        """
        described = super().describe(tune_split)
        reading = self.row.sources[-1].reading
        if self.model is not None:
            described[-1] |= {"learned": reading.weight_name, "policy": reading.weight}
        return described


@dataclass(frozen=True)
class PerContext(OnPositions):
    """Weights by a model of the contexts, on top of the numbers that the grid chose for all of
    them.

    The model is cross-fitted: without a gain on held-out text, one number for all is used. A
    subclass gives the features of a context, and fits the model.
    """

    passes: ClassVar[tuple[Pass, ...]] = (TUNE, WEIGH)
    step: ClassVar[Pass] = WEIGH

    @property
    @abstractmethod
    def features(self) -> int:
        """Number of features of a context; an attribute of the subclass."""

    @abstractmethod
    def inputs(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved
    ) -> Float[Tensor, "n f"]:
        """Features of the contexts of some rows of a range, float64; `retrieved`: entries of the
        last reading there.
        """

    @abstractmethod
    def fit(self, positions: WeightPositions, weight: float) -> ContextWeights:
        """Fit the model to some positions, starting from one weight for all; the same arguments
        give the same model.
        """

    @property
    def points(self) -> Sequence[Point]:
        if WEIGH.name not in self.choices:
            return self.best
        *others, last = self.best
        return *others, last._replace(weight=self.choices[WEIGH.name]["weight"])

    # Finding the weights

    def positions(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> WeightPositions:
        inputs = self.inputs(block, rows, retrieved[-1])
        log_p = self.others(block, rows, retrieved)
        log_sums = self._last_sums(retrieved)
        positions = WeightPositions(inputs, log_p.double(), log_sums.log_prob.double())
        return positions.select(~log_sums.empty)

    def learnt(self, positions: WeightPositions) -> Record:
        """The number for all contexts, and the model if it gains; `stages.evaluation.figures` shows
        the rest.
        """
        weight = self.best[-1].weight
        off = self.grids[-1].off
        assert off is not None, "a weight of each context is one that switches the memory off, too"
        one_for_all = positions.read_with(weight)
        helps = bool(one_for_all.sum() > positions.log_p.sum())
        # Compared with the better of both: otherwise a network could win against a harmful memory.
        baseline = one_for_all if helps else positions.log_p
        learned = learn(positions, weight, baseline, self.fit)
        model = learned.network if learned is not None and learned.significant else None

        # Gains of searches are those of the memory as it will be read; a memory that is switched off
        # has none.
        log_p = one_for_all
        if model is not None:
            log_p = positions.read(model.logits(positions.inputs))
        is_read = learned is not None and (model is not None or helps)
        return {
            "weight": weight if helps else off,
            "tokens": len(positions),
            "gains": [] if learned is None else learned.gains,
            "network": None if model is None else model.record,
            "gate": self.search_gains(positions, log_p) if is_read else None,
        }

    def scratch_bytes(self, tokens: int) -> int:
        return super().scratch_bytes(tokens) + 4 * tokens * (self.features + 2)

    def search_gains(self, positions: WeightPositions, log_p: Float[Tensor, " n"]) -> Record | None:
        """The contexts where searches gain most, if that is reported; `log_p`: of the targets with
        the memory read.
        """
        return None

    # Reading

    def weights(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Sequence[Weight]:
        """Each reading's weight; the last is 0 at positions that retrieve nothing."""
        numbers = super().weights(block, rows, retrieved)
        if self.model is None:
            return numbers
        inputs = self.inputs(block, rows, retrieved[-1])
        weight = self.model.logits(inputs).sigmoid().to(block.lm.log_p)
        # The model has no features for a context that retrieves nothing: the weight is 0 there.
        retrieves = ~self._last_sums(retrieved).empty
        return [*numbers[:-1], weight * retrieves]

    def _last_sums(self, retrieved: Sequence[Retrieved]) -> LogSums:
        """Log-sums of the last reading at its best point, [n]."""
        point = self.best[-1]
        return retrieved[-1].log_sums([point.scale], [point.cutoff]).at(0, 0)

    def describe(self, tune_split: str | None) -> list[dict[str, Any]]:
        """The readings; whether the number for all contexts is inside its grid is not reported."""
        described = super().describe(tune_split)
        described[-1]["interior"].pop(self.row.sources[-1].reading.weight_name, None)
        return described
