"""The objective: a method's loss, and the terms that the model's layers add to it."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from stages.methods.method import Batch, Method
from stages.models.backbone import Encoding, State
from stages.models.devices import autocast
from stages.models.language_model import LanguageModel
from stages.training.compiling import Compiled


class Objective(nn.Module):
    """The loss as the forward pass of a module, for data-parallel wrappers to see."""

    def __init__(
        self,
        model: LanguageModel,
        method: Method,
        device: torch.device,
        precision: str,
        compiled: Compiled | None = None,
    ) -> None:
        """`compiled`: parts of the model that are compiled; None: none are."""
        super().__init__()
        self._compiled = compiled
        self.model, self.method = model, method
        self.device, self.precision = device, precision
        self.auxiliary: Tensor | None = None
        """Term that layers added to the latest loss, float64 []; None: nothing."""

    def forward(self, batch: Batch, state: State, back: Tensor | None = None) -> tuple[Tensor, State]:
        """The loss of a batch, and the state after it, without gradient (truncated backpropagation through time).

        Args:
            back: of a model that reads documents, how many positions of its own stand before each input, int64 [B, L].
        """
        auxiliary: list[Tensor] = []

        def keep(backbone: nn.Module, inputs: object, encoding: Encoding) -> None:
            if encoding.auxiliary_loss is not None:
                auxiliary.append(encoding.auxiliary_loss)

        def add(backbone: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return given, named if back is None else {**named, "back": back}

        # Hooks of the backbone see every encoding that the method asks for, so no method can forget its part.
        backbone = self.model.backbone
        with (
            self._compiled.used() if self._compiled else nullcontext(),
            autocast(self.device, self.precision),
            backbone.register_forward_pre_hook(add, with_kwargs=True),
            backbone.register_forward_hook(keep),
        ):
            loss, state = self.method.loss(self.model, batch, state)
        self.auxiliary = torch.stack(auxiliary).sum().detach().double() if auxiliary else None
        return sum(auxiliary, start=loss), state and tuple(tensor.detach() for tensor in state)
