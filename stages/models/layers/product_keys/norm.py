"""Batch norm whose batch is that of all processes that train along."""

from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as ranks


class SharedBatchNorm(nn.BatchNorm1d):
    """Normalizes [n, d] in training by mean and variance over the rows of all processes; one alone: `BatchNorm1d`.

    All processes must ask, each with as many rows; their running means and variances stay the same to the bit.
    Torch's `SyncBatchNorm` does it on GPUs alone.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training and ranks.is_initialized() and ranks.get_world_size() > 1):
            return super().forward(input)
        rows = len(input) * ranks.get_world_size()
        mean = _Sum.apply(input.sum(0)) / rows
        centred = input - mean
        variance = _Sum.apply(centred.square().sum(0)) / rows
        self._follow(mean.detach(), variance.detach() * (rows / (rows - 1)))
        normalized: Tensor = centred * (variance + self.eps).rsqrt() * self.weight + self.bias
        return normalized

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Let the running ones take a step towards a batch's mean and unbiased variance."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes, which is as much a part of the loss of each."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return _summed(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def _summed(own: Tensor) -> Tensor:
    total = own.clone(memory_format=torch.contiguous_format)
    ranks.all_reduce(total)
    return total
