"""EWC and MAS: a quadratic penalty holds each weight by its importance for earlier tasks."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.examples.documents import LabelledBatch, labelled
from stages.examples.examples import Task
from stages.methods.method import SideInputs, Update
from stages.methods.stream.classifying import Classifying, add_gradients
from stages.methods.stream.config import AnchorSettings, EwcConfig, MasConfig
from stages.models.backbone import named_below
from stages.models.language_model import LanguageModel, evaluating

A = TypeVar("A", bound=AnchorSettings)
IMPORTANCE = "importance/"
ANCHORS = "own/"


class Anchored(Classifying[A]):
    """The loss is ℓ + (λ / 2) Σ Ω (θ - θ*)²: θ* are the weights after the previous task, Ω their
    importance.

    The penalty's gradient is added before the optimizer's step. The loss that is reported is ℓ.
    """

    hints = "a smaller memory.penalty, "

    def __init__(self, settings: A, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self._importance = dict[str, Tensor]()
        self._anchors = dict[str, Tensor]()

    @abstractmethod
    def value(self, model: LanguageModel, batch: LabelledBatch) -> Tensor:
        """A value of one example, a scalar, whose gradient says how much the example needs each
        weight.
        """

    @abstractmethod
    def weighed(self, gradient: Tensor) -> Tensor:
        """The importance that a gradient of `value` gives each weight."""

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        self._importance = self._on_device(self._importance)
        self._anchors = self._on_device(self._anchors)

    def _on_device(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self._device) for name, tensor in tensors.items()}

    def end_task(self, task: Task) -> None:
        """Ω ← ρ Ω + the mean importance over examples of the task, drawn by lot; θ* ← θ."""
        weights = {
            name: weight for name, weight in self._model.named_parameters() if weight.requires_grad
        }
        importance = self._task_importance(task, weights)
        for name, earlier in self._importance.items():
            if name in importance:
                importance[name] += self.settings.decay * earlier

        self._importance = importance
        self._anchors = {name: weight.detach().clone() for name, weight in weights.items()}

    def _task_importance(self, task: Task, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Mean importance of each weight over examples of one task; 0 where none needs it."""
        examples = task.examples
        count = min(self.settings.examples, examples.count)
        generator = self.random(self.place(task))
        chosen = generator.choice(examples.count, count, replace=False)

        parameters = list(weights.values())
        means = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        with evaluating(self._model):
            # One example at a time: the importance of a batch's gradient is not the mean of the
            # examples' importance, as squares and absolute values do not add up.
            for example in chosen:
                document = examples.batch(np.array([example]))
                batch = labelled(document).to(self._device)
                value = self.value(self._model, batch)
                # a weight that the value does not depend on has no gradient
                gradients = torch.autograd.grad(value, parameters, allow_unused=True)
                for mean, gradient in zip(means.values(), gradients, strict=True):
                    if gradient is not None:
                        mean += self.weighed(gradient) / count
        return means

    def step(self, update: Update) -> Tensor:
        loss, _ = add_gradients(update)
        for name, weight in self._model.named_parameters():
            if name in self._anchors and weight.grad is not None:
                weight.grad += (
                    self.settings.penalty
                    * self._importance[name]
                    * (weight.detach() - self._anchors[name])
                )
        update.change_weights()
        return loss

    def state_dict(self) -> dict[str, Any]:
        importance = {IMPORTANCE + name: tensor for name, tensor in self._importance.items()}
        return importance | {ANCHORS + name: tensor for name, tensor in self._anchors.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._importance = named_below(state, IMPORTANCE)
        self._anchors = named_below(state, ANCHORS)


class Ewc(Anchored[EwcConfig]):
    """Ω is the mean of (∂ log p(y | x))² with the true labels: the diagonal of the empirical Fisher
    information.

    Source: Kirkpatrick et al. 2017 (arXiv:1612.00796); online as in Schwarz et al. 2018
    (arXiv:1805.06370), section 3.
    """

    def value(self, model: LanguageModel, batch: LabelledBatch) -> Tensor:
        return F.cross_entropy(model.label_scores(batch), batch.labels)

    def weighed(self, gradient: Tensor) -> Tensor:
        return gradient.square()


class Mas(Anchored[MasConfig]):
    """Ω is the mean of the absolute gradient of |o(x)|²; o are the scores before the softmax.

    Source: Aljundi et al. 2018 (arXiv:1711.09601), equation 3 with the squared norm of section 4.1.
    """

    def value(self, model: LanguageModel, batch: LabelledBatch) -> Tensor:
        scores = model.label_scores(batch)
        # A position that cannot be an answer has -inf for any weights.
        return scores[scores.isfinite()].square().sum()

    def weighed(self, gradient: Tensor) -> Tensor:
        return gradient.abs()
