"""Code of the source `decoder`: a second model's distribution, as a memory of one entry a type."""

from collections.abc import Mapping, Sequence

import torch

from stages.artifacts.artifact import Artifact
from stages.encoding.side_model import SideModel, SideModels
from stages.memory.entries import Entries
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.decoder_settings import CONTROL, DECODER
from stages.retrieval.sources.source import About, Needs, Opening, Source

TEMPERATURES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
"""Default grid of τ; 1 is the distribution that the model learned."""


class DecoderSource(Source):
    """Log-probabilities of all types by a model that reads the same text.

    Every type is an entry whose score is its log-probability. So p_mem = softmax(log p / τ), and
    all that reads entries can read a model.

    Source: Cao et al. 2025 (Memory Decoder, arXiv:2508.09874), section 3.
    """

    @classmethod
    def open_memory(cls, opening: Opening) -> SideModels:
        """The decoder and its control."""
        models = {
            opening.read[role].id: SideModel.of(opening.read[role], opening.reader)
            for role in (DECODER, CONTROL)
            if role in opening.read
        }
        return SideModels(models)

    @classmethod
    def outline_memory(
        cls, read: Mapping[str, Artifact], readings: Sequence[Reading], device: torch.device
    ) -> SideModels:
        return SideModels({})

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
    def needs(self) -> Needs:
        return Needs(models=frozenset({self._name}))

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """All types, whatever their number."""
        return (self.inputs.vocabulary,)

    def narrowed(self, cutoff: int) -> "DecoderSource":
        return self

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """All types, with their log-probabilities."""
        memory: SideModels = self.memory
        model = memory.models[self._name].model
        hidden = scored_range.side_hidden[self._name]
        targets = scored_range.lm.targets
        types = torch.arange(self.inputs.vocabulary, device=targets.device, dtype=torch.int32)
        # No entry has a place in a text: a decoder quotes nothing.
        nowhere = torch.full((1, 1), -1, device=targets.device)

        def retrieve_part(part: slice) -> Retrieved:
            log_p = model.log_probs(hidden[part])[:, : len(types)]
            entries = Entries(log_p, types.expand(len(log_p), -1))
            ids = nowhere.expand(len(log_p), len(types))
            return retrieve(entries, targets[part], ids, DECODER)

        return retrieve_part

    def spread(self, sample: list[ScoredRange]) -> float:
        """Log-probabilities have a unit of their own."""
        return 1.0

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """1/τ."""
        return tuple(1 / temperature for temperature in TEMPERATURES)

    @property
    def _name(self) -> str:
        return str(self.reading.value("model")).rpartition("/")[2]
