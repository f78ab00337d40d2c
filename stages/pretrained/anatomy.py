"""Finds the parts of a causal model of transformers, by its shapes alone."""

from typing import Any

from torch import nn

from stages.errors import DataError

FEED_FORWARD = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "fc1", "mlp_block")
"""Names of the feed-forward part of a block, in the order in which it is looked for."""
T5_FEED_FORWARD = "DenseReluDense"
"""That of T5, inside a layer that has its norm, too."""
CAPS = ("final_logit_softcapping", "logits_soft_cap", "final_logit_soft_cap")
"""Settings that bend the scores before the softmax."""
LOOKUP_SCALES = ("scalar_embed_scale", "embed_scale")
"""Names of the factor in an embedding that scales its rows."""


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
    if part is None:
        part = next((one for one, _ in stack[-1].named_modules() if one.endswith(f".{T5_FEED_FORWARD}")), None)
    return None if part is None else f"{name}.{layers - 1}.{part}"


def longest_window(settings: Any) -> int | None:
    """Positions that a model has; None: any number."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
    found = next((getattr(settings, name) for name in names if getattr(settings, name, None)), None)
    return None if found is None else int(found)


def head_settings(causal: Any, name: str) -> dict[str, Any]:
    """How scores of the vocabulary come from the hidden state, as settings of a memlm model, where the model says so.

    Raises: DataError if it scores no vocabulary.
    """
    head, settings = causal.get_output_embeddings(), causal.config
    if head is None:
        raise DataError(f"{name} scores no vocabulary: it is no causal language model.")
    scale = float(getattr(settings, "logit_scale", None) or 1) / float(getattr(settings, "logits_scaling", None) or 1)
    cap = next((getattr(settings, cap) for cap in CAPS if getattr(settings, cap, None)), None)
    return {
        "score_scale": scale,
        "score_bias": getattr(head, "bias", None) is not None,
        "score_cap": None if cap is None else float(cap),
    }


def input_scale(causal: Any) -> float:
    """Factor by which the model's own lookup multiplies rows of its table (Gemma: √d)."""
    lookup = causal.get_input_embeddings()
    return next((float(getattr(lookup, name)) for name in LOOKUP_SCALES if hasattr(lookup, name)), 1.0)
