"""Figures of updates, on their way from the device where they were computed."""

import torch
from torch import Tensor


class Reading:
    """A number, copied while the host goes on."""

    def __init__(self, number: Tensor) -> None:
        """`number`: a scalar, the last thing that was asked of its device: `value` waits for no more than that."""
        self._copy = number.detach().to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if number.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def value(self) -> float:
        """The number, once it is there."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._copy)


class UpdateReadings:
    """Figures that an update reports."""

    def __init__(self, step: int, loss: Tensor, auxiliary: Tensor | None, documents: int) -> None:
        """Args:
        step: its number, from 1.
        loss: a scalar.
        auxiliary: what of it layers added, a scalar; None: nothing.
        documents: of how many it has read a part.
        """
        self.step, self.documents = step, documents
        self._loss = Reading(loss)
        self._auxiliary = None if auxiliary is None else Reading(auxiliary)

    @property
    def loss(self) -> float:
        return self._loss.value()

    @property
    def auxiliary(self) -> float | None:
        return None if self._auxiliary is None else self._auxiliary.value()
