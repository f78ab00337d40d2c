"""A small network from features of a context to one number, fitted to a split.

Inputs x are standardized: on the text of the fit, each has mean 0 and variance 1. The output is

    o(x) = c + u · tanh(W x + b)

Fitting begins at u = 0, where the output is c for every context.

Shapes: n positions, F inputs, H hidden units; all in float64.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

HIDDEN = 32
PASSES = 10
"""Epochs of the fit."""
BATCH = 256
RATE = 0.01
"""Initial learning rate of AdamW; it falls linearly to 0."""
DECAY = 0.01
"""Weight decay of AdamW."""


@dataclass(frozen=True)
class Observations(ABC):
    """Positions to which weights are fitted: tensors with a row for each position."""

    inputs: Float[Tensor, "n f"]
    """Features."""

    def __len__(self) -> int:
        return len(self.inputs)

    def select(self, rows: Tensor) -> Self:
        """Select some of the positions."""
        tensors = [getattr(self, field.name) for field in fields(self)]
        return type(self)(*(tensor[rows] for tensor in tensors))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the positions of several parts."""
        columns = list[Tensor]()
        for field in fields(cls):
            columns.append(torch.cat([getattr(part, field.name) for part in parts]))
        return cls(*columns)

    @abstractmethod
    def read(self, logits: Tensor) -> Float[Tensor, " n"]:
        """log p of the targets with the weights that logits give."""


@dataclass(frozen=True)
class SmallNetwork:
    """Parameters of a network: inputs are (x − `mean`) / `spread`; W is `inner`, u `outer`, c
    `offset`.

    The output for a context is one number, or a vector of c numbers; then `outer` is a matrix.
    """

    mean: Float[Tensor, " f"]
    spread: Float[Tensor, " f"]
    inner: Float[Tensor, "h f"]
    bias: Float[Tensor, " h"]
    outer: Float[Tensor, "*c h"]
    offset: Float[Tensor, "*c"]

    @classmethod
    def constant(cls, inputs: Float[Tensor, "n f"], offset: float | Tensor, seed: int = 0) -> Self:
        """Create a network with the output `offset` for every context, standardized for inputs like
        these.

        W is drawn with variance 1/F, and b is 0. The standard deviation of a constant feature is
        set to 1.
        """
        output = torch.as_tensor(offset, dtype=torch.float64)
        deviation = inputs.std(0, correction=0)
        # A constant feature is 0 after standardization, whatever it is divided by.
        spread = torch.where(deviation > 0, deviation, 1.0)

        # W is drawn in float32, then widened: the same numbers as ever for a seed.
        width = inputs.shape[1]
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(HIDDEN, width, generator=generator).double()
        return cls(
            mean=inputs.mean(0),
            spread=spread,
            inner=weights / math.sqrt(width),
            bias=torch.zeros(HIDDEN, dtype=torch.float64),
            outer=torch.zeros(*output.shape, HIDDEN, dtype=torch.float64),
            offset=output,
        )

    def outputs(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, "n ..."]:
        """Outputs o(x) of positions, float64 on the CPU."""
        standard = (inputs.double().cpu() - self.mean) / self.spread
        hidden = torch.tanh(standard @ self.inner.T + self.bias)  # [n, H]
        # `t`, since `outer` may be a vector, which it leaves as it is.
        return self.offset + hidden @ self.outer.t()

    @property
    def record(self) -> dict[str, Any]:
        """Its parameters as JSON, with all digits."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        parameters = {
            field.name: torch.tensor(record[field.name], dtype=torch.float64)
            for field in fields(cls)
        }
        return cls(**parameters)


N = TypeVar("N", bound=SmallNetwork)


def fit_network(
    network: N,
    inputs: Float[Tensor, "n f"],
    loss: Callable[[Tensor, Tensor], Tensor],
    seed: int = 0,
) -> N:
    """Fit a network by AdamW, starting from another one; deterministic for a seed.

    Args:
        network: initial parameters; mean, spread and offset stay as they are.
        loss: function of positions, int64 [r], and their outputs [r], to minimize.
    """
    # Evaluations run in inference mode, in which tensors have no gradients.
    with torch.inference_mode(False), torch.enable_grad():
        # Clones, since tensors made in inference mode stay without gradients.
        parameters = {field.name: getattr(network, field.name).clone() for field in fields(network)}
        result = type(network)(**parameters)
        trained = [result.inner, result.bias, result.outer]
        for parameter in trained:
            parameter.requires_grad_()
        optimizer = torch.optim.AdamW(trained, RATE, weight_decay=DECAY)

        generator = torch.Generator().manual_seed(seed)
        batches = list[Tensor]()
        for _ in range(PASSES):
            shuffled = torch.randperm(len(inputs), generator=generator)
            batches += shuffled.split(BATCH)

        for step, rows in enumerate(batches):
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / len(batches))
            optimizer.zero_grad()
            outputs = result.outputs(inputs[rows])
            loss(rows, outputs).backward()
            optimizer.step()

        # The parameters were updated in place.
        detached = {name: parameter.detach() for name, parameter in parameters.items()}
        return type(network)(**detached)
