"""The MLP of a memory, beside a loop in float64."""

import math

import numpy as np
import torch

from stages.models.memory_mlp import MemoryMlp
from stages.models.memory_mlp_settings import MemoryMlpSettings


def normed(x: np.ndarray, norm: torch.nn.LayerNorm) -> np.ndarray:
    centred = x - x.mean()
    scaled = centred / math.sqrt((centred**2).mean() + norm.eps)
    weight, bias = (part.detach().numpy() for part in (norm.weight, norm.bias))
    return scaled * weight + bias


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def linear(x: np.ndarray, layer: torch.nn.Linear) -> np.ndarray:
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    return np.array([sum(w * v for w, v in zip(row, x, strict=True)) for row in weight]) + bias


def test_blocks_are_those_of_a_loop() -> None:
    torch.manual_seed(0)
    mlp = MemoryMlp(6, MemoryMlpSettings(layers=2, ffn_width=5)).double()
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter)
    keys = torch.randn(3, 6, dtype=torch.float64)
    for key, found in zip(keys.numpy(), mlp(keys).detach().numpy(), strict=True):
        x = key
        for block in mlp.blocks:
            inner = linear(normed(x, block.norm), block.inner)
            x = x + linear(np.array([gelu(value) for value in inner]), block.outer)
        np.testing.assert_allclose(found, normed(x, mlp.norm), rtol=1e-9)


def test_it_begins_as_the_key_itself() -> None:
    keys = torch.randn(3, 6)
    mlp = MemoryMlp(6, MemoryMlpSettings(layers=3))
    torch.testing.assert_close(mlp(keys), mlp.norm(keys))
