"""How the weights of a stack of blocks begin."""

import torch
from torch import nn


def initialize(blocks: nn.ModuleList) -> None:
    """Xavier; what is added to the residual stream is smaller the deeper the model."""
    for name, parameter in blocks.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            nn.init.xavier_uniform_(parameter)
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                with torch.no_grad():
                    parameter.div_((2 * len(blocks)) ** 0.5)
