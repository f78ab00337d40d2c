"""Readings of memory: what a model answers with the documents of memory that it may see."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from stages.examples.documents import Documents, LabelledBatch
from stages.memory.episodic import nearest, squared_distances
from stages.methods.stream.classifying import losses_of_scores
from stages.models.backbone import Encoding
from stages.models.language_model import LanguageModel
from stages.tasks.reader import Candidates, StreamReader, best_labels
from stages.tasks.readings import (
    Adaptation,
    AdaptedPart,
    Coarse,
    Mbpa,
    Neighbors,
    NoReading,
    RandomAdaptation,
    Reading,
)

EPSILON = 1e-3
"""ε of the weights of neighbours by their distance."""
R = TypeVar("R", bound=Reading)
A = TypeVar("A", bound=Adaptation)


class Answering(ABC, Generic[R]):
    """Answers of a model that reads memory in one way."""

    def __init__(self, settings: R, reader: StreamReader) -> None:
        """`reader`: the model with its weights of the moment, the documents in memory, and their
        keys if the reading asks for them.
        """
        self.settings = settings
        self.reader = reader

    @abstractmethod
    def answers(
        self, documents: Documents, visible: np.ndarray, among: Candidates | None
    ) -> list[Any]:
        """The best label of each example, or its best span as text.

        Args:
            documents: examples [n].
            visible: documents of memory that may be read, by their numbers in the training split,
                int64 [m], m > 0.
            among: candidate labels of each example; None: all labels.
        """

    def distances(
        self, documents: Documents, visible: np.ndarray
    ) -> Iterator[Float[np.ndarray, " m"]]:
        """Squared distances of the key of each example from those of the visible documents."""
        assert self.reader.keys is not None
        stored = self.reader.keys.stored[visible]
        for query in self.reader.keys.of(documents):
            yield squared_distances(query, stored)


class Alone(Answering[NoReading]):
    """The model alone."""

    def answers(
        self, documents: Documents, visible: np.ndarray, among: Candidates | None
    ) -> list[Any]:
        return self.reader.best(documents, among)


class Interpolation(Answering[Neighbors]):
    """The model's probabilities and those of the nearest documents' labels, interpolated."""

    def answers(
        self, documents: Documents, visible: np.ndarray, among: Candidates | None
    ) -> list[Any]:
        probabilities = self.reader.probabilities(documents)
        weight = self.settings.weight
        memory = self._of_neighbors(documents, visible, probabilities.shape[1])
        return best_labels(weight * memory + (1 - weight) * probabilities, among)

    def _of_neighbors(self, documents: Documents, visible: np.ndarray, labels: int) -> np.ndarray:
        """p_mem(y), float64 [n, |Y|]: normalized exp(-d² / τ) of the nearest documents with label
        y.
        """
        label_weights = np.zeros((documents.count, labels))
        for row, distances in enumerate(self.distances(documents, visible)):
            chosen = nearest(distances, self.settings.k)
            # Minus the smallest distance: otherwise the weights of far neighbours would underflow
            # to zero.
            above = distances[chosen] - distances[chosen].min()
            weights = np.exp(-above / self.settings.temperature)
            labels_near = self.reader.memory.split.labels[visible[chosen]]
            np.add.at(label_weights[row], labels_near, weights / weights.sum())
        return label_weights


class EachAdaptation(Answering[A]):
    """Weights that adapt anew for each example, to documents that a subclass chooses."""

    @abstractmethod
    def choices(
        self, documents: Documents, visible: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Tensor | None]]:
        """For each example the places of its documents among the visible ones, int64 [K], and
        their weights, float [K]; None: all alike.
        """

    def answers(
        self, documents: Documents, visible: np.ndarray, among: Candidates | None
    ) -> list[Any]:
        answers = list[Any]()
        reader = self.reader
        settings = self.settings
        for row, (chosen, weights) in enumerate(self.choices(documents, visible)):
            part = slice(row, row + 1)
            batch = reader.memory.split.batch(visible[chosen]).to(reader.device)
            steps = repeat(batch, settings.steps)
            with adapted(reader.model, steps, settings, settings.part, weights):
                answers += reader.best(documents.of(documents.chosen[part]), among and among[part])
        return answers


class NearestAdaptation(EachAdaptation[Mbpa]):
    """MbPA and MbPA++: the nearest documents."""

    def choices(
        self, documents: Documents, visible: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Tensor | None]]:
        for distances in self.distances(documents, visible):
            chosen = nearest(distances, self.settings.k)
            weights = None
            if self.settings.weight == "distance":
                weights = torch.from_numpy(kernel_weights(distances[chosen]))
                weights = weights.to(self.reader.device)
            yield chosen, weights


class DrawnAdaptation(EachAdaptation[RandomAdaptation]):
    """The control of MbPA: documents that are drawn for each example."""

    def choices(
        self, documents: Documents, visible: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Tensor | None]]:
        for document in documents.chosen.tolist():
            yield drawn_places(self.settings, len(visible), document), None


class CommonAdaptation(Answering[Coarse]):
    """Weights that adapt once for all examples, to documents that each step draws anew."""

    def answers(
        self, documents: Documents, visible: np.ndarray, among: Candidates | None
    ) -> list[Any]:
        reader = self.reader
        settings = self.settings
        # The documents of a step depend only on the place in the stream.
        draw = (
            visible[drawn_places(settings, len(visible), reader.place, step)]
            for step in range(settings.steps)
        )
        batches = (reader.memory.split.batch(rows).to(reader.device) for rows in draw)
        with adapted(reader.model, batches, settings, settings.part):
            return reader.best(documents, among)


def drawn_places(settings: Adaptation, visible: int, *purpose: int) -> np.ndarray:
    """Places of k drawn documents among so many visible ones; equal `purpose` gives equal draws."""
    random = np.random.default_rng([0, *purpose])
    return random.choice(visible, min(settings.k, visible), replace=False)


def kernel_weights(distances: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Weights of neighbours at squared distances, 1 / (ε + d²), that sum to one.

    Source: Sprechmann et al. 2018 (MbPA, arXiv:1802.10542), section 2; ε as in Pritzel et al. 2017
    (arXiv:1703.01988).

    >>> kernel_weights(np.array([0.999, 2.999])).tolist()
    [0.75, 0.25]
    """
    kernel = 1 / (EPSILON + distances)
    return kernel / kernel.sum()


@contextmanager
def adapted(
    model: LanguageModel,
    batches: Iterable[LabelledBatch],
    settings: Adaptation,
    part: AdaptedPart = "all",
    weights: Float[Tensor, " K"] | None = None,
) -> Iterator[None]:
    """Context with a model adapted to the documents of each step; afterwards its weights are
    restored exactly.

    W̃ ← W̃ - η ∇(Σ w ℓ(W̃; x, y) + κ |W̃ - W|²), L times from W̃ = W: plain gradient descent
    without dropout.
    The gates and the frozen copy of ANML-ER do not adapt, nor do prototypes of EMAR.

    Args:
        weights: w of each document of a batch; None: 1 / K.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), equation 1, with equal weights;
    Sprechmann et al. 2018 (MbPA, arXiv:1802.10542).
    """
    changed = [
        weight
        for name, weight in model.named_parameters()
        if name.startswith("head." if part == "head" else "")
        and not name.startswith(("frozen.", "head.modulator."))
    ]
    before = [weight.detach().clone() for weight in changed]
    encodings = Encodings(model, part)
    try:
        for batch in batches:
            scores = model.label_scores(batch, encodings.of(batch))
            if weights is None:
                loss = F.cross_entropy(scores, batch.labels)
            else:
                losses = losses_of_scores(scores, batch.labels)
                loss = (weights.to(losses.dtype) * losses).sum()
            gradients = torch.autograd.grad(loss, changed, allow_unused=True)
            with torch.no_grad():
                for weight, original, gradient in zip(changed, before, gradients, strict=True):
                    # The vocabulary's softmax may have no gradient, and then stays as it is.
                    if gradient is not None:
                        towards = gradient + 2 * settings.anchor * (weight - original)
                        weight.sub_(towards, alpha=settings.lr)
        yield
    finally:
        with torch.no_grad():
            for weight, original in zip(changed, before, strict=True):
                weight.copy_(original)


class Encodings:
    """Encodings of the batches of the steps, which stay the same where the head alone adapts."""

    def __init__(self, model: LanguageModel, part: AdaptedPart) -> None:
        self._model = model
        self._stay = part == "head"
        self._batch: LabelledBatch | None = None
        self._encoding: Encoding | None = None

    def of(self, batch: LabelledBatch) -> Encoding | None:
        """The encoding of a batch, computed once while it is the same; None: the encoder adapts,
        and its states want a gradient.
        """
        if self._stay and batch is not self._batch:
            with torch.no_grad():
                self._encoding = self._model.read(batch)
            self._batch = batch
        return self._encoding
