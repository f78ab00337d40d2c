"""Batches whose positions are a memory of each other."""

import torch

from stages.memory.in_batch.visible import earlier, others


def batch(n, keys, width=3, seed=0, vocabulary=4, dtype=torch.float64):
    """Queries, keys, targets and values."""
    made = torch.Generator().manual_seed(seed)
    made_queries = torch.randn(n, width, generator=made, dtype=dtype)
    made_keys = torch.randn(keys, width, generator=made, dtype=dtype)
    ids = torch.randint(0, vocabulary, (n + keys,), generator=made)
    return made_queries, made_keys, ids[:n], ids[n:]


def segments(lengths, kind):
    """What is visible in a batch of segments of these lengths."""
    lengths = torch.tensor(lengths)
    stops = lengths.cumsum(0).repeat_interleave(lengths)
    starts = stops - lengths.repeat_interleave(lengths)
    own = torch.arange(len(stops))
    if kind == "local":
        return earlier(starts, own)
    if kind == "long":
        return earlier(torch.zeros_like(own), own)
    return others(starts, stops, own, len(own), local=kind == "others+local")


KINDS = ("local", "long", "others", "others+local")


def both_ways(function, queries, keys, targets, values, visible, scale=0.7):
    """Values and gradients: of random upstream gradients for either result, 0 where it is -inf."""
    queries, keys = queries.clone().requires_grad_(), keys.clone().requires_grad_()
    results = function(queries, keys, targets, values, visible, scale)
    made = torch.Generator().manual_seed(1)
    loss = 0.0
    for result in results:
        upstream = torch.randn(len(result), generator=made, dtype=torch.float64).to(result.dtype)
        loss = loss + (result.masked_fill(result.isneginf(), 0) * upstream).sum()
    return (*results, *torch.autograd.grad(loss, (queries, keys), allow_unused=True))


def own_memory(function, hidden, ids, visible):
    """Values and gradient of a batch whose queries are its keys, the same tensor."""
    hidden = hidden.clone().requires_grad_()
    results = function(hidden, hidden, ids, ids, visible, 0.7)
    made = torch.Generator().manual_seed(1)
    upstream = torch.randn(2, len(ids), generator=made, dtype=torch.float64).to(results[0].dtype)
    loss = sum(
        (one.masked_fill(one.isneginf(), 0) * up).sum()
        for one, up in zip(results, upstream, strict=True)
    )
    return (*results, *torch.autograd.grad(loss, hidden))
