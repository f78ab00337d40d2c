"""What a causal model of transformers is made of, found on its shapes alone."""

from typing import Any

import torch
from torch import nn

from stages.errors import DataError

FEED_FORWARD = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "fc1", "mlp_block")
"""What the feed-forward part of a block is called, in the order in which it is looked for."""
CAPS = ("final_logit_softcapping", "logits_soft_cap", "final_logit_soft_cap")
"""Settings that bend the scores before the softmax."""


def last_feed_forward(blocks: nn.Module, layers: int) -> str | None:
    """The module whose input is g: the feed-forward part of the last block; None where a block has none.

    Blocks are the outermost list of as many modules as the model has layers.

    >>> lists = nn.ModuleDict({"layers": nn.ModuleList(nn.ModuleDict({"mlp": nn.Linear(2, 2)}) for _ in range(3))})
    >>> last_feed_forward(lists, 3)
    'layers.2.mlp'
    """
    stacks = [
        (name, module)
        for name, module in blocks.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == layers
    ]
    if not stacks:
        return None
    name, stack = min(stacks, key=lambda found: found[0].count("."))
    inside = dict(stack[-1].named_children())
    part = next((part for part in FEED_FORWARD if part in inside), None)
    return None if part is None else f"{name}.{layers - 1}.{part}"


def longest_window(settings: Any) -> int | None:
    """Positions that a model has; None: any number."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
    found = next((getattr(settings, name) for name in names if getattr(settings, name, None)), None)
    return None if found is None else int(found)


def require_plain_scores(causal: Any, name: str) -> None:
    """Raises: DataError if scores of the vocabulary are more than products with the hidden state."""
    cap = next((cap for cap in CAPS if getattr(causal.config, cap, None)), None)
    head = causal.get_output_embeddings()
    if head is None:
        raise DataError(f"{name} scores no vocabulary: it is no causal language model.")
    if cap is not None:
        raise DataError(f"{name} caps its scores ({cap}), which memlm's softmax does not do yet.")
    if getattr(head, "bias", None) is not None:
        raise DataError(f"{name} adds a bias to its scores, which memlm's softmax does not do yet.")


def score_scale(settings: Any) -> float:
    """What products with the hidden state are multiplied by, as far as the settings say so."""
    scale = float(getattr(settings, "logit_scale", None) or 1.0)
    return scale / float(getattr(settings, "logits_scaling", None) or 1.0)


def embedding_table(causal: Any) -> torch.Tensor:
    """What enters the blocks for each token, [V, d]: rows of the table, scaled where the model's own lookup does so."""
    lookup = causal.get_input_embeddings()
    with torch.no_grad():
        table: torch.Tensor = lookup(torch.arange(lookup.num_embeddings, device=lookup.weight.device))
    return table
