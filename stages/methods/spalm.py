"""SPALM: the tokens of precomputed neighbours enter the hidden state before the softmax."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from stages.methods.config import TRAIN, VALID, SpalmConfig
from stages.methods.method import Batch, BatchIndex, EncodedTokens, Method, SideInputs
from stages.methods.segments import Segments
from stages.models.config import ModelConfig
from stages.models.language_model import LanguageModel, State


@dataclass
class NeighborBatch(Batch):
    """Segments, and the tokens of their positions' neighbours, int64 [B, L, k], -1 where one is missing."""

    neighbor_tokens: Tensor


class Spalm(Method):
    """Mean negative log-likelihood given z_t, which the neighbours of position t have entered through a gate.

    Neighbours are fixed; the embeddings of their tokens are learnt. Nothing is searched.

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
    """

    def __init__(self, settings: SpalmConfig | None = None, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self.settings = settings or SpalmConfig()
        stored = {tokens.shape[1] for tokens in self.side_inputs.neighbor_tokens.values()}
        assert stored <= {self.settings.k}, "as many neighbours are given as are read"

    def carries_state(self, config: ModelConfig) -> bool:
        return config.carries_state

    def trained(self, model: LanguageModel) -> Iterable[nn.Parameter]:
        if not self.settings.only_gate:
            return model.parameters()
        assert model.gate is not None
        return model.gate.parameters()

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> NeighborBatch:
        batch = super().batch(split, segments, index)
        return NeighborBatch(batch.inputs, batch.targets, self._neighbor_tokens(TRAIN, split.places(segments)))

    def loss(self, model: LanguageModel, batch: Batch, state: State) -> tuple[Tensor, State]:
        assert isinstance(batch, NeighborBatch)
        encoding = model.encode(batch.inputs, state)
        gated = model.gated(encoding.hidden.flatten(0, 1), batch.neighbor_tokens.flatten(0, 1))
        return model.loss(gated.hidden, batch.targets.flatten()), encoding.state

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        places = np.arange(read.start, read.start + len(read.targets))
        neighbors = self._neighbor_tokens(VALID, places).to(read.targets.device)
        return model.log_prob(model.gated(read.key("hidden"), neighbors).hidden, read.targets)[0]

    def _neighbor_tokens(self, split: str, places: np.ndarray) -> Tensor:
        """Tokens of the neighbours of a split's tokens at `places` [...], int64 [..., k]."""
        return torch.from_numpy(self.side_inputs.neighbor_tokens[split][places].astype(np.int64))
