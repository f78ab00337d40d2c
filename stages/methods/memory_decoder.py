"""Memory Decoder: a model learns the distributions that neighbours give, and replaces their search."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.examples.examples import Batch, Examples
from stages.methods.method import BatchIndex, Carried, Loss, Method
from stages.methods.neighbor_labels import NeighborLabels
from stages.methods.settings import MemoryDecoderConfig
from stages.models.language_model import LanguageModel
from stages.models.soft_labels import SoftLabels, entropy_of_shares


@dataclass(kw_only=True)
class LabelledBatch(Batch):
    """Segments, and the shares of their labels that neighbours' tokens have; see `SoftLabels`."""

    label_rows: Tensor
    """Rows are positions of the batch, flattened: row b, position t is b · L + t."""
    label_tokens: Tensor
    label_shares: Tensor

    @property
    def labels(self) -> SoftLabels:
        return SoftLabels(self.label_rows, self.label_tokens, self.label_shares)


class MemoryDecoder(Method[MemoryDecoderConfig]):
    """(1/n) Σ_t [α Σ_w q_t(w) log(q_t(w) / p(w|c_t)) - (1 - α) log p(x_t|c_t)].

    q_t is the distribution that the neighbours of position t give. A position without neighbours
    has α = 0. This is cross entropy with soft labels, up to the entropy of q, so the labels are
    never spread over the vocabulary. With α = 0 it is plain language modelling, the control.

    Source: Cao et al. 2025 (Memory Decoder, arXiv:2508.09874), section 3.
    """

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        batch = examples.batch(which)
        if not self.settings.alpha:
            return batch
        stored: NeighborLabels = self.side_inputs["soft-labels"]
        places = batch.places.ravel()
        shares = torch.from_numpy(stored.shares[places])
        is_held = shares > 0
        tokens = torch.from_numpy(stored.tokens[places])[is_held].long()
        return LabelledBatch.of(
            batch,
            label_rows=is_held.nonzero()[:, 0],
            label_tokens=tokens,
            label_shares=self.settings.alpha * shares[is_held],
        )

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> Loss:
        encoding = model.read(batch, carried.state)
        hidden, targets = batch.rows(encoding.hidden), batch.rows(batch.targets)
        if isinstance(batch, LabelledBatch):
            mean = _divergence(model, hidden, targets, batch.labels)
        else:
            mean = model.loss(hidden, targets)
        return Loss.of(mean, encoding, carried=Carried(encoding.state))

    def figures(self) -> dict[str, Any]:
        if not self.settings.alpha:
            return {}
        stored: NeighborLabels = self.side_inputs["soft-labels"]
        return {"without_neighbours": float((stored.shares[:, 0] == 0).mean())}


def _divergence(
    model: LanguageModel, hidden: Tensor, targets: Tensor, labels: SoftLabels
) -> Tensor:
    """Mean of α KL(q ‖ p) - (1 - α) log p(target), where shares of labels are α q."""
    positions = len(targets)
    entropy = labels.totals(positions) * entropy_of_shares(labels, positions)
    # The entropy has no gradient. With it the best possible loss at α = 1 is 0.
    return model.soft_loss(hidden, targets, labels) - entropy.mean().to(hidden.dtype)
