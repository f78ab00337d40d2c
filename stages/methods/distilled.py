"""Methods that learn the distributions of neighbours, so that no search is needed.

Memory Decoder trains a whole model, MLP Memory an MLP on a trained model's own representations.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from stages.encoding.encode import EncodedBlock
from stages.examples.examples import Batch, Examples
from stages.methods.method import BatchIndex, Carried, Loss, Method, ParameterGroup
from stages.methods.neighbor_labels import NeighborLabels
from stages.methods.settings import DistilledConfig, MemoryDecoderConfig, MlpMemoryConfig
from stages.models.backbone import Encoding
from stages.models.language_model import LanguageModel
from stages.models.soft_labels import SoftLabels

T = TypeVar("T", bound=DistilledConfig)
ROWS = 1 << 16
"""Positions whose shares are looked at together, since they lie on disk."""


@dataclass(kw_only=True)
class LabelledBatch(Batch):
    """Segments, and labels in place of targets: α of the neighbours' tokens, the rest of the next."""

    label_rows: Tensor
    """Rows are positions of the batch, flattened: row b, position t is b · L + t."""
    label_tokens: Tensor
    label_shares: Tensor
    label_entropy: Tensor
    """-α Σ_w q(w) log q(w) of each position in nats, [N]."""

    @property
    def labels(self) -> SoftLabels:
        return SoftLabels(self.label_rows, self.label_tokens, self.label_shares)


class Student(NamedTuple):
    """The encoding of a batch by a student, and the hidden states of its distributions, [N, d]."""

    encoding: Encoding
    hidden: Tensor


class Distilled(Method[T]):
    """(1/n) Σ_t [α Σ_w q_t(w) log(q_t(w) / p(w|c_t)) - (1 - α) log p(x_t|c_t)].

    q_t is the distribution that the neighbours of position t give. A position without neighbours
    has α = 0. This is cross entropy with soft labels, up to the entropy of q, so the labels are
    never spread over the vocabulary. With α = 0 it is plain language modelling, the control.

    Source: Cao et al. 2025 (Memory Decoder, arXiv:2508.09874).
    """

    @abstractmethod
    def student(self, model: LanguageModel, batch: Batch, carried: Carried) -> Student:
        """Read a batch."""

    @final
    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        """A batch with soft labels α q + (1 - α) δ, where q is stored, and δ is the next token."""
        batch = examples.batch(which)
        alpha = self.settings.alpha
        if not alpha:
            return batch
        stored: NeighborLabels = self.side_inputs["soft-labels"]
        places = batch.places.ravel()
        q = torch.from_numpy(stored.shares[places])  # [tokens, k]
        neighbor_tokens = torch.from_numpy(stored.tokens[places]).long()

        # the next token is one more label, with the rest of the shares: [tokens, k + 1]
        neighbor_shares = alpha * q
        rest = 1 - neighbor_shares.sum(1, keepdim=True)
        shares = torch.cat((neighbor_shares, rest), 1)
        next_tokens = batch.targets.flatten()[:, None]
        tokens = torch.cat((neighbor_tokens, next_tokens), 1)

        # Float sums may exceed 1 where α is 1.
        is_present = shares > 0
        return LabelledBatch.of(
            batch,
            label_rows=is_present.nonzero()[:, 0],
            label_tokens=tokens[is_present],
            label_shares=shares[is_present],
            label_entropy=alpha * torch.special.entr(q).sum(1),
        )

    @final
    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> Loss:
        encoding, hidden = self.student(model, batch, carried)
        if isinstance(batch, LabelledBatch):
            cross_entropy = model.soft_loss(hidden, batch.labels)
            # The entropy has no gradient. With it the best possible loss at α = 1 is 0.
            entropy = batch.label_entropy.mean().to(hidden.dtype)
            mean = cross_entropy - entropy
        else:
            targets = batch.rows(batch.targets)
            mean = model.loss(hidden, targets)
        return Loss.of(mean, encoding, carried=Carried(encoding.state))

    @final
    def figures(self) -> dict[str, Any]:
        if not self.settings.alpha:
            return {}
        stored: NeighborLabels = self.side_inputs["soft-labels"]
        alone = sum(
            int((stored.shares[start : start + ROWS].max(axis=1) == 0).sum())
            for start in range(0, len(stored.shares), ROWS)
        )
        return {"without_neighbours": alone / len(stored.shares)}


class MemoryDecoder(Distilled[MemoryDecoderConfig]):
    """A model of any backbone is the student."""

    def student(self, model: LanguageModel, batch: Batch, carried: Carried) -> Student:
        encoding = model.read(batch, carried.state)
        return Student(encoding, batch.rows(encoding.hidden))


class MlpMemory(Distilled[MlpMemoryConfig]):
    """An MLP on the keys of a trained model is the student; the model stays as it is.

    Source: Wei et al. 2025 (MLP Memory, arXiv:2508.01832).
    """

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        assert model.mlp is not None, "the settings add it"
        return [ParameterGroup(list(model.mlp.parameters()))]

    def student(self, model: LanguageModel, batch: Batch, carried: Carried) -> Student:
        # The model learns nothing, so its graph is not needed.
        with torch.no_grad():
            encoding = model.read(batch, carried.state)
        return Student(encoding, model.recalled(batch.rows(encoding.key(_key(model)))))

    def log_prob(self, model: LanguageModel, read: EncodedBlock, starts: Tensor) -> Tensor:
        return model.log_prob(model.recalled(read.key(_key(model))), read.targets)[0]


def _key(model: LanguageModel) -> str:
    """The representation that a model's MLP reads."""
    assert model.mlp is not None, "the settings add it"
    return model.mlp.key
