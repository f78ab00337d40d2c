"""Streams of embeddings, what a backbone makes of them piece by piece, and its weights as oracles
take them.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stages.models.backbone import Backbone, Inputs, State


def embeddings(length: int, rows: int = 2, width: int = 8) -> Tensor:
    """The same at each call, float64 [rows, length, width]."""
    return torch.randn(
        rows, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    """The weights of a module by name."""
    return {name: weight.detach().numpy() for name, weight in module.named_parameters()}


def weights(
    backbone: Any, of: Callable[[nn.Module], dict[str, Any]] = arrays
) -> tuple[list[dict[str, Any]], Any]:
    """Weights of each block, and of the last norm."""
    return list(map(of, backbone.blocks)), of(backbone.norm)


class Read(NamedTuple):
    """A stream [B, n, d], read."""

    hidden: Tensor
    ffn_input: Tensor | None
    state: State
    auxiliary: Any
    """Sum of the auxiliary losses; 0 where there are none."""


def read(
    backbone: Backbone,
    stream: Tensor,
    cuts: Sequence[int] = (),
    document_offset: Tensor | None = None,
    gradients: bool = False,
) -> Read:
    """Read a stream in the pieces that lie between `cuts`."""
    state, pieces = None, []
    with torch.set_grad_enabled(gradients):
        for start, stop in pairwise([0, *cuts, stream.shape[1]]):
            offset = None if document_offset is None else document_offset[:, start:stop]
            pieces.append(backbone(Inputs(stream[:, start:stop], state, offset)))
            state = pieces[-1].state
    inputs = [piece.ffn_input for piece in pieces]
    return Read(
        torch.cat([piece.hidden for piece in pieces], 1),
        None if inputs[0] is None else torch.cat(inputs, 1),
        state,
        sum(piece.auxiliary_loss for piece in pieces if piece.auxiliary_loss is not None),
    )
