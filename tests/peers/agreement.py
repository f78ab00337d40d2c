"""What a comparison says: how far apart two computations of the same numbers lie."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

EXACT = 1e-10
"""Of float64: what sums in another order may differ by, relative to the largest number that is
compared.
"""


class Agreement(NamedTuple):
    compared: str
    on: str
    """Sizes and seeds."""
    difference: float
    """The largest, relative to the largest number of the tensor that it is found in."""
    tolerance: float = EXACT

    @property
    def agreed(self) -> bool:
        return self.difference <= self.tolerance


def difference(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """The largest |a - b| / max |b| over pairs of tensors of the same shape; NaN where a number is
    none.
    """
    return float(
        torch.stack(
            [_apart(a.detach(), b.detach()) for a, b in zip(ours, theirs, strict=True)]
        ).max()
    )


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Of each parameter; zero where the loss does not depend on it."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def _apart(ours: Tensor, theirs: Tensor) -> Tensor:
    if ours.shape != theirs.shape:
        raise ValueError(f"{tuple(ours.shape)} is compared with {tuple(theirs.shape)}")
    if not ours.numel():
        return torch.zeros((), dtype=torch.float64)
    largest = theirs.abs().max().double()
    return (ours - theirs).abs().max().double() / (largest if largest else 1.0)
