"""How the weights of a layer in a block begin."""

import torch
from torch import nn


def initialize(layer: nn.Module, last: nn.Linear, blocks: int) -> None:
    """Xavier; `last`, which is added to the residual stream, is smaller the more blocks there are. Biases are 0."""
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            nn.init.xavier_uniform_(parameter)
    with torch.no_grad():
        last.weight.div_((2 * blocks) ** 0.5)
