"""OML-ER and ANML-ER: fast weights learn a support; then all weights learn from a query."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor, nn

from stages.examples.examples import Batch, Examples, Task
from stages.methods.method import BatchIndex, SideInputs, Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import EpisodeSettings
from stages.methods.stream.memory import DrawsDocuments, learnt
from stages.models.backbone import named_below
from stages.models.language_model import LanguageModel

FAST = "fast/"


class OmlEr(DrawsDocuments[EpisodeSettings]):
    """θ = (φ, W). W' = W learns m batches by plain descent; then θ learns from the gradient of a
    query at (φ, W').

    The gradient is of first order: it does not reach through the steps of W'. The query is the next
    batch of the stream, in every R_F-th episode a draw from memory instead. An update is a batch of
    the stream; the last is a query.

    Source: Holla et al. 2020 (arXiv:2009.04891), algorithm 1; W is the head (OML: Javed and White
    2019).
    """

    hints = "a smaller memory.inner_lr, "

    _support = _episodes = 0
    """Batches of the support that W' has learnt, and episodes that have ended."""
    _ends = False

    def __init__(self, settings: EpisodeSettings, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self._fast = dict[str, Tensor]()
        """W' during an episode."""

    def is_fast(self, name: str) -> bool:
        """Whether the weight with this name belongs to W."""
        return name.startswith("head.")

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        self._own: dict[str, nn.Parameter] = {}
        for name, weight in model.named_parameters():
            if weight.requires_grad and self.is_fast(name):
                self._own[name] = weight
        self._fast = {name: tensor.to(self._device) for name, tensor in self._fast.items()}

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        self._ends = index.update + 1 == index.updates
        return super().batch(examples, which, index)

    def step(self, update: Update) -> Tensor:
        with self._adapted():
            loss, batches = add_gradients(update)
        self.count(batches)
        self.write(update, batches)
        if self._support == self.settings.support or self._ends:
            self._learn(update)
            return loss
        self._adapt(update)
        size = sum(len(batch.labels) for batch in batches)
        asks = (self._episodes + 1) % self.settings.interval(size) == 0
        if self._support == self.settings.support and asks and len(self.memory):
            with self._adapted():
                self.add_gradients_of(update, self.draw(update, 0), len(batches[0].labels))
            self._learn(update)
        return loss

    def _adapt(self, update: Update) -> None:
        """W' ← W' - α ∇_W ℓ(φ, W'); W' = W at the beginning of an episode."""
        for name, weight in self._own.items():
            if weight.grad is not None:
                before = self._fast.get(name, weight.detach())
                self._fast[name] = before - self.settings.inner_lr * weight.grad
        for weight in learnt(update):
            weight.grad = None
        self._support += 1

    def _learn(self, update: Update) -> None:
        """Update θ by the gradients of a query; the episode ends, and W' is discarded."""
        update.change_weights()
        self._fast.clear()
        self._support = 0
        self._episodes = self._episodes + 1

    @contextmanager
    def _adapted(self) -> Iterator[None]:
        """Context with W' in place of W."""
        slow = {name: self._own[name].data for name in self._fast}
        for name, fast in self._fast.items():
            self._own[name].data = fast
        try:
            yield
        finally:
            for name, tensor in slow.items():
                self._own[name].data = tensor

    def state_dict(self) -> dict[str, Any]:
        fast = {FAST + name: tensor for name, tensor in self._fast.items()}
        return super().state_dict() | fast | {"support": self._support, "episodes": self._episodes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._fast = named_below(state, FAST)
        self._support = state["support"]
        self._episodes = state["episodes"]


class AnmlEr(OmlEr):
    """W is encoder and head; φ gates the features by the output of a frozen copy of the encoder.

    Source: Holla et al. 2020 (arXiv:2009.04891), section 4.2; its code leaves the copy trainable.
    """

    def is_fast(self, name: str) -> bool:
        return not name.startswith("head.modulator.")

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        if self._read:
            return

        # nothing is learnt yet: the frozen copy is of the initial weights
        assert model.frozen is not None
        weights = model.state_dict()
        copies = {}
        for name, tensor in model.frozen.state_dict().items():
            # A matrix with LoRA factors has another name here than in the initial model, which the
            # copy comes from.
            copies[name] = weights.get(name, tensor)
        model.frozen.load_state_dict(copies)
