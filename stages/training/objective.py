"""The objective: a method's loss, and the terms that the model's layers add to it."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from stages.methods.method import Batch, Carried, Method
from stages.models.backbone import Encoding
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

    def forward(self, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        """The loss of a batch, and what it leaves."""
        auxiliary: list[Tensor] = []

        def keep(backbone: nn.Module, inputs: object, encoding: Encoding) -> None:
            if encoding.auxiliary_loss is not None:
                auxiliary.append(encoding.auxiliary_loss)

        # A hook of the backbone sees every encoding that the method asks for, so no method can forget its part.
        with (
            self._compiled.used() if self._compiled else nullcontext(),
            autocast(self.device, self.precision),
            self.model.backbone.register_forward_hook(keep),
        ):
            loss, carried = self.method.loss(self.model, batch, carried)
        self.auxiliary = torch.stack(auxiliary).sum().detach().double() if auxiliary else None
        return sum(auxiliary, start=loss), carried
