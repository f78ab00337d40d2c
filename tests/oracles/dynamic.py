"""Dynamic evaluation from its equations, in float64, one segment and one tensor at a time.

Krause et al. 2018 (arXiv:1709.07432), section 4, RMS with a global prior; how statistics are
gathered (mean loss of up to 100 streams, means of tensors averaged) is what the authors' code does.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

Weights = dict[str, torch.Tensor]
Loss = Callable[[Weights, int], torch.Tensor]
"""The mean loss of a segment, by its number, with some weights."""


def gradients(weights: Weights, loss: torch.Tensor) -> dict[str, np.ndarray]:
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {
        name: np.zeros(tuple(weights[name].shape)) if one is None else one.numpy().copy()
        for name, one in zip(weights, found, strict=True)
    }


def root_mean_squares(
    trained: dict[str, np.ndarray], count: int, loss: Loss
) -> dict[str, np.ndarray]:
    """M of each weight, over `count` batches of training text."""
    squares = {name: np.zeros_like(one) for name, one in trained.items()}
    for number in range(count):
        weights = leaves(trained)
        for name, g in gradients(weights, loss(weights, number)).items():
            squares[name] += g**2
    return {name: np.sqrt(square / count) for name, square in squares.items()}


def dynamic_losses(
    trained: dict[str, np.ndarray],
    rms: dict[str, np.ndarray],
    segments: Sequence[int],
    loss: Loss,
    rate: float,
    decay: float,
    begins: Sequence[int] = (),
    epsilon: float = 1.0,
) -> list[float]:
    """The loss of each segment before anything is learned from it.

    Args:
        epsilon: ε in units of mean(M); the authors have a constant.
        begins: segments before which everything learned is forgotten.
    """
    mean = sum(one.mean() for one in rms.values()) / len(rms)
    theta = {name: one.copy() for name, one in trained.items()}
    losses = []
    for number in segments:
        if number in begins:
            theta = {name: one.copy() for name, one in trained.items()}
        weights = leaves(theta)
        value = loss(weights, number)
        losses.append(float(value.detach()))
        learned = gradients(weights, value)
        for name in theta:
            back = np.minimum(1.0, decay * rms[name] / mean) * (trained[name] - theta[name])
            theta[name] = theta[name] - rate * learned[name] / (rms[name] + epsilon * mean) + back
    return losses


def leaves(weights: dict[str, np.ndarray]) -> Weights:
    return {name: torch.tensor(one, requires_grad=True) for name, one in weights.items()}


def lstm_loss(
    weights: Weights,
    inputs: np.ndarray,
    targets: np.ndarray,
    state: tuple[torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Mean loss of rows [B, L] of a tied LSTM of one layer, token by token; and its state."""
    h, c = state
    total = torch.zeros((), dtype=torch.float64)
    for place in range(inputs.shape[1]):
        x = weights["vocabulary.embedding"][torch.from_numpy(inputs[:, place])]
        before = (
            x @ weights["backbone.lstm.weight_ih_l0"].T
            + weights["backbone.lstm.bias_ih_l0"]
            + h @ weights["backbone.lstm.weight_hh_l0"].T
            + weights["backbone.lstm.bias_hh_l0"]
        )
        i, f, g, o = before.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        scores = h @ weights["vocabulary.embedding"].T
        chosen = scores.gather(1, torch.from_numpy(targets[:, place])[:, None])[:, 0]
        total = total + (torch.logsumexp(scores, 1) - chosen).sum()
    return total / inputs.size, (h.detach(), c.detach())
