"""Where the time of a step goes, by kinds of operations."""

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch.profiler import ProfilerActivity, profile

Groups = Mapping[str, tuple[str, ...]]
"""How the names of operations of each kind begin; what begins as none of them does stands under its
own name.
"""

GROUPS: Groups = {
    "products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": ("scaled_dot", "flash_attention", "efficient_attention"),
    "LSTM": ("lstm", "thnn_fused_lstm", "mkldnn_rnn", "cudnn_rnn"),
    "softmax": ("softmax", "log_softmax", "logsumexp", "exp_", "amax", "nll_loss"),
    "copies": ("copy", "to_copy", "clone", "cat", "stack", "fill", "zero", "constant_pad", "roll"),
    "gather": ("gather", "scatter", "index", "embedding", "take", "masked_select"),
    "GELU": ("gelu",),
    "dropout": ("native_dropout", "dropout", "bernoulli", "random", "uniform"),
    "norms": ("native_layer_norm", "layer_norm"),
    "optimizer": ("Optimizer", "fused_adam", "foreach", "fused_sgd", "linalg_vector_norm"),
    "sums and scaling": ("add", "sub", "mul", "div", "sum", "where", "masked_fill"),
}


def own_times(step: Callable[[], object], steps: int = 1) -> Mapping[str, float]:
    """Microseconds that each operation of PyTorch spends in itself, on a GPU where there is one."""
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiled:
        for _ in range(steps):
            step()
    taken: Counter[str] = Counter()
    for event in profiled.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        taken[event.key.removeprefix("aten::").lstrip("_")] += spent
    return taken


def shares(taken: Mapping[str, float], groups: Groups, rest: str | None = None) -> dict[str, float]:
    """What part of all time each kind takes, the largest first.

    Args:
        rest: what is of no kind, under this name; None: under its own.
    """
    summed: dict[str, float] = {}
    for name, spent in taken.items():
        group = next(
            (group for group, beginnings in groups.items() if name.startswith(beginnings)),
            rest or name,
        )
        summed[group] = summed.get(group, 0.0) + spent
    total = sum(summed.values())
    largest = sorted(summed.items(), key=lambda one: -one[1])
    return {group: spent / total for group, spent in largest}
