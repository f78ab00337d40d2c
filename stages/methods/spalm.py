"""SPALM: the tokens of precomputed neighbours enter the hidden state before the softmax."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from stages.encoding.encode import EncodedBlock
from stages.examples.examples import Batch, Examples
from stages.methods.config import TRAIN, VALID
from stages.methods.method import BatchIndex, Carried, Loss, Method, ParameterGroup
from stages.methods.settings import SpalmConfig
from stages.models.language_model import LanguageModel


@dataclass(kw_only=True)
class NeighborBatch(Batch):
    """Segments, and the tokens of each position's neighbours, int64 [B, L, k], -1 if one is
    missing.
    """

    neighbor_tokens: Tensor


class Spalm(Method[SpalmConfig]):
    """Mean negative log-likelihood given z_t, which the neighbours of position t have entered
    through a gate.

    Neighbours are fixed; the embeddings of their tokens are learnt. Nothing is searched. Some
    positions go without neighbours in training, so that h_t learns to predict by itself (not of the
    paper).

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
    """

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        if not self.settings.only_gate:
            return super().parameter_groups(model)
        assert model.gate is not None
        return [ParameterGroup(list(model.gate.parameters()))]

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> NeighborBatch:
        batch = examples.batch(which)
        return NeighborBatch.of(batch, neighbor_tokens=self._neighbor_tokens(TRAIN, batch.places))

    def loss(self, model: LanguageModel, batch: NeighborBatch, carried: Carried) -> Loss:
        encoding = model.read(batch, carried.state)
        neighbors = batch.neighbor_tokens.flatten(0, 1)  # [B · L, k]
        if model.training:
            dropout = self.settings.neighbor_dropout or 0.0
            neighbors = without_some(neighbors, dropout)

        # After the backbone: the state that it carries to the next segment is free of neighbours.
        hidden = encoding.hidden.flatten(0, 1)
        gated = model.gated(hidden, neighbors)
        mean = model.loss(gated.hidden, batch.targets.flatten())
        return Loss.of(mean, encoding, carried=Carried(encoding.state))

    def log_prob(self, model: LanguageModel, read: EncodedBlock, starts: Tensor) -> Tensor:
        places = np.arange(read.start, read.start + len(read.targets))
        neighbors = self._neighbor_tokens(VALID, places).to(read.targets.device)
        return model.log_prob(model.gated(read.key("hidden"), neighbors).hidden, read.targets)[0]

    def _neighbor_tokens(self, split: str, places: np.ndarray) -> Tensor:
        """Tokens of the neighbours of a split's tokens at `places` [...], int64 [..., k]."""
        stored = self.side_inputs["neighbors"][split]
        assert stored.shape[1] == self.settings.k, "as many neighbours are given as are read"
        # Stored as int32, in half the room; torch looks embeddings up by int64.
        return torch.from_numpy(stored[places].astype(np.int64))


def without_some(neighbors: Int64[Tensor, "N k"], probability: float) -> Int64[Tensor, "N k"]:
    """The tokens with all neighbours of a position dropped (-1), with this probability for each
    position.

    >>> without_some(torch.tensor([[3, 4]]), 0.0)
    tensor([[3, 4]])
    """
    if not probability:
        return neighbors
    left_out = torch.rand(len(neighbors), 1, device=neighbors.device) < probability
    return neighbors.masked_fill(left_out, -1)
