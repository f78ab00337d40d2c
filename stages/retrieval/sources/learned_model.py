"""Common part of sources of learned distributions: a memory of one entry a type."""

from abc import abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor

from stages.memory.entries import Entries
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Source

TEMPERATURES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
"""Default grid of τ; 1 is the distribution that the model learned."""


class LearnedSource(Source):
    """Log-probabilities of all types.

    Every type is an entry whose score is its log-probability. So p_mem = softmax(log p / τ), and
    all that reads entries can read a model.

    Source: Cao et al. 2025 (Memory Decoder, arXiv:2508.09874).
    """

    role: ClassVar[str]
    """Role of the model among the inputs of a report."""

    @abstractmethod
    def log_probs(self, scored_range: ScoredRange, part: slice) -> Tensor:
        """Log-probabilities of all types at a part of a range, [n, V], in nats."""

    @property
    def model_id(self) -> str:
        """Id of the model that is read."""
        return str(self.reading.value("model")).rpartition("/")[2]

    @property
    def about(self) -> About:
        """Description; the control is read in the same way."""
        model, control = (self.reading.value(name) for name in ("model", "control"))
        details = {"model": model}
        if model == control:
            return About("types", distinction=" without neighbours, α = 0", details=details)
        read_instead = self.reading.changed({"model": control}) if control else None
        return About("types", details=details, control=read_instead)

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """All types, whatever their number."""
        return (self.inputs.vocabulary,)

    def narrowed(self, cutoff: int) -> Self:
        return self

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """All types, with their log-probabilities."""
        targets = scored_range.lm.targets
        types = torch.arange(self.inputs.vocabulary, device=targets.device, dtype=torch.int32)
        # No entry has a place in a text: what was learned quotes nothing.
        nowhere = torch.full((1, 1), -1, device=targets.device)

        def retrieve_part(part: slice) -> Retrieved:
            log_p = self.log_probs(scored_range, part)[:, : len(types)]  # [n, V]
            # Views: all positions share one row of types.
            entries = Entries(log_p, types.expand(len(log_p), -1))
            ids = nowhere.expand(len(log_p), len(types))
            return retrieve(entries, targets[part], ids, self.role)

        return retrieve_part

    def spread(self, sample: list[ScoredRange]) -> float:
        """Log-probabilities have a unit of their own."""
        return 1.0

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """1/τ."""
        return tuple(1 / temperature for temperature in TEMPERATURES)
