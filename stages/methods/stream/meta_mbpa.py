"""Meta-MbPA: weights are trained to be good after a step on their neighbours in memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stages.examples.documents import LabelledBatch, labelled
from stages.examples.examples import Task
from stages.memory.episodic import nearest, squared_distances
from stages.methods.method import Carried, SideInputs, Update
from stages.methods.stream.config import MetaMbpaConfig
from stages.methods.stream.memory import KEEP, WRITE, DrawsDocuments
from stages.models.language_model import LanguageModel


def far_ones(
    distances: Float[np.ndarray, " n"], count: int, beta: float, random: np.random.Generator
) -> np.ndarray:
    """Draw `count` places, none twice, with weights 1 - exp(-d² / β); uniformly if too few have a
    weight.

    The weight grows with the distance from memory and saturates. The paper prints a log-probability
    of -d² / β, which prefers near examples, and says that diversity is wanted.

    >>> far_ones(np.array([0.0, 9.0, 0.0, 9.0]), 2, 1.0, np.random.default_rng(0))
    array([1, 3])
    """
    weights = -np.expm1(-distances / beta)
    if np.count_nonzero(weights) < count:
        return np.sort(random.choice(len(distances), count, replace=False))
    return np.sort(random.choice(len(distances), count, replace=False, p=weights / weights.sum()))


class _Loss(nn.Module):
    """The loss as the forward pass of a module, so that it can be computed with other weights."""

    def __init__(self, method: "MetaMbpa", model: LanguageModel) -> None:
        super().__init__()
        self.model = model
        self._method = method

    def forward(self, batch: LabelledBatch) -> Tensor:
        return self._method.loss(self.model, batch, Carried()).mean


class MetaMbpa(DrawsDocuments[MetaMbpaConfig]):
    """θ̃ = θ - α ∇ℓ(θ; N), where N are a batch's neighbours in memory; θ follows the gradient of
    ℓ(θ̃) on the batch.

    Draws from memory are learnt in the same way. While memory has fewer than k examples the loss is
    plain. Losses are computed in the precision of the weights.

    Source: Wang et al. 2020 (arXiv:2010.02500), section 3.
    """

    hints = "a smaller memory.inner_lr, "

    def __init__(self, settings: MetaMbpaConfig, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self._waiting = np.empty((0, 2), np.int64)
        """Documents of the current block, and the places of their tasks."""
        self._beta = settings.beta

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        self._keys: np.ndarray = self.side_inputs["episodes"]
        self._loss = _Loss(self, model)
        self._weights = {
            name: weight for name, weight in self._loss.named_parameters() if weight.requires_grad
        }

    def step(self, update: Update) -> Tensor:
        losses = []
        read = []
        for part in update.batches():
            batch = labelled(part.batch)
            losses.append(self._add_gradients(update, batch, 1 / update.accumulate))
            read.append(batch)
        update.change_weights()

        size = len(read[0].labels)
        for number in range(self.draws_due(read)):
            for memory_batch in self.batches(self.draw(update, number), size):
                self._add_gradients(update, memory_batch, 1.0)
                update.change_weights()
        self.write(update, read)
        return torch.stack(losses).sum()

    def _add_gradients(self, update: Update, batch: LabelledBatch, weight: float) -> Tensor:
        """Add the gradients of a batch, times a weight; returns its loss, a scalar."""
        losses = []
        for part, share in self._parts(batch):
            loss = self._after_step(update, part) * (weight * share)
            update.backward(loss)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _parts(self, batch: LabelledBatch) -> Iterator[tuple[LabelledBatch, float]]:
        """Groups of documents with a common step on neighbours, and the share of each in the batch."""
        if self.settings.adapt == "batch":
            yield batch, 1.0
            return
        for document in batch.documents:
            (alone,) = self.batches(np.array([document]), 1)
            yield alone, 1 / len(batch.documents)

    def _after_step(self, update: Update, batch: LabelledBatch) -> Tensor:
        """ℓ(θ̃), a scalar; ℓ(θ) while memory has too few examples."""
        num_others = len(self.memory)
        # a document of the batch is in memory, and may not be its own neighbour
        if not self.settings.own_neighbor:
            num_others -= 1
        if num_others < self.settings.k:
            return update.loss_of(batch)

        rows = self.neighbors(batch.documents)
        (near,) = self.batches(rows, len(rows))
        rate = self.settings.inner_lr or update.optimizer.param_groups[0]["lr"]
        second_order = self.settings.second_order

        # The fused kernels of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH) if second_order else nullcontext():
            loss = self._loss(near)
        weights = list(self._weights.values())
        gradients = torch.autograd.grad(loss, weights, create_graph=second_order, allow_unused=True)

        # θ̃ = θ - rate · gradient
        changed = {}
        for (name, weight), gradient in zip(self._weights.items(), gradients, strict=True):
            changed[name] = weight if gradient is None else weight - rate * gradient
        after: Tensor = torch.func.functional_call(self._loss, changed, (batch,))
        return after

    def neighbors(self, documents: np.ndarray) -> np.ndarray:
        """The rows of memory that are among the k nearest of some documents, each once.

        A document of memory is its own neighbour unless the settings exclude it.
        """
        rows = self.memory.rows
        neighbors = []
        for document in documents:
            candidates = rows
            if not self.settings.own_neighbor:
                candidates = rows[rows != document]
            distances = squared_distances(self._keys[document], self._keys[candidates])
            nearest_places = nearest(distances, self.settings.k)
            neighbors.append(candidates[nearest_places])
        return np.unique(np.concatenate(neighbors))

    def write(self, update: Update, batches: Sequence[LabelledBatch]) -> None:
        """Choose among the examples of a block, once it is full, those that are written."""
        read = np.concatenate([batch.documents for batch in batches])
        self._waiting = np.concatenate(
            (self._waiting, np.stack((read, np.full(len(read), self.task)), 1))
        )
        self._write_blocks(self.settings.block, self.random(WRITE, update.number))

    def end_task(self, task: Task) -> None:
        """After the last task, treat the rest as a block, so that a short stream also leaves
        examples in memory.
        """
        if self.task == len(self._tasks) - 1 and len(self._waiting):
            self._write_blocks(len(self._waiting), self.random(KEEP))

    def _write_blocks(self, size: int, random: np.random.Generator) -> None:
        while len(self._waiting) >= size:
            block = self._waiting[:size]
            self._waiting = self._waiting[size:]
            for document, task in self._chosen(block, random):
                self.memory.write(np.array([document]), int(task), 1.0, random, self.settings.size)

    def _chosen(self, block: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Examples of a block to write, [n, 2]: document and place of its task."""
        num_examples = len(block)
        num_chosen = max(1, round(self.settings.write * num_examples))
        stored = self._keys[self.memory.rows]
        if not len(stored):
            # nothing is near an empty memory
            distances = np.full(num_examples, np.inf)
            return block[far_ones(distances, num_chosen, 1.0, random)]

        nearest_distances = []
        for document in block[:, 0]:
            to_stored = squared_distances(self._keys[document], stored)
            nearest_distances.append(to_stored.min())
        distances = np.array(nearest_distances)

        # the first block sets the scale of distances
        if self._beta is None:
            self._beta = float(np.median(distances)) or 1.0
        return block[far_ones(distances, num_chosen, self._beta, random)]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"waiting": torch.tensor(self._waiting), "beta": self._beta}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._waiting = state["waiting"].numpy()
        self._beta = state["beta"]
