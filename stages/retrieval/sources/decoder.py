"""Code of the source `decoder`: the distribution of a second model that reads the same text."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.side_model import SideModel, SideModels
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.decoder_settings import CONTROL, DECODER
from stages.retrieval.sources.learned_model import LearnedSource
from stages.retrieval.sources.source import Needs, Opening


class DecoderSource(LearnedSource):
    """Log-probabilities by a side model."""

    role: ClassVar[str] = DECODER

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
    def needs(self) -> Needs:
        return Needs(models=frozenset({self.model_id}))

    def log_probs(self, scored_range: ScoredRange, part: slice) -> Tensor:
        memory: SideModels = self.memory
        hidden = scored_range.side_hidden[self.model_id]
        return memory.models[self.model_id].model.log_probs(hidden[part])
