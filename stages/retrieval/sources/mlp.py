"""Code of the source `mlp`: the distribution of an MLP on the evaluated model's own states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.learned_model import LearnedSource
from stages.retrieval.sources.mlp_settings import MLP, MLP_CONTROL
from stages.retrieval.sources.source import Needs, Opening


@dataclass(frozen=True)
class MlpMemories:
    """Models with an MLP memory, and the key that each reads, by their ids."""

    keys: Mapping[str, str]
    models: Mapping[str, LanguageModel]


class MlpSource(LearnedSource):
    """Log-probabilities of the model's softmax over what the MLP recalls."""

    role: ClassVar[str] = MLP

    @classmethod
    def open_memory(cls, opening: Opening) -> MlpMemories:
        """The MLP and its control, each with the softmax of the model."""
        models = _models(opening.read)
        device = opening.reader.device
        opened = {id: load_model(model.path, device) for id, model in models.items()}
        return MlpMemories(_keys(models), opened)

    @classmethod
    def outline_memory(
        cls, read: Mapping[str, Artifact], readings: Sequence[Reading], device: torch.device
    ) -> MlpMemories:
        return MlpMemories(_keys(_models(read)), {})

    @property
    def key(self) -> str:
        """Representation that the MLP reads."""
        memory: MlpMemories = self.memory
        return memory.keys[self.model_id]

    @property
    def needs(self) -> Needs:
        return Needs(keys=frozenset({self.key}))

    def log_probs(self, scored_range: ScoredRange, part: slice) -> Tensor:
        memory: MlpMemories = self.memory
        model = memory.models[self.model_id]
        with torch.no_grad():
            hidden = model.recalled(scored_range.lm.keys[self.key][part])
        return model.log_probs(hidden)


def _models(read: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """The models that are read, by id."""
    return {read[role].id: read[role] for role in (MLP, MLP_CONTROL) if role in read}


def _keys(models: Mapping[str, Artifact]) -> dict[str, str]:
    """The key that the MLP of each model reads."""
    keys: dict[str, str] = {}
    for id, model in models.items():
        mlp = model_of(model).mlp
        assert mlp is not None, "the reading was checked"
        keys[id] = mlp.key
    return keys
