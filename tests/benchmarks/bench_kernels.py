"""Kernels in Triton beside PyTorch's way of the same function, and beside the products that both
need.

    python -m tests.benchmarks.bench_kernels local [--positions 24576 --segment-length 3072 \\
        --width 128]
    python -m tests.benchmarks.bench_kernels cells --positions 16384 --segment-length 512 \\
        --width 1024

`local`, `long` and `others` are in-batch memory as trime, trime-long and trime-ext read it, `cells`
is the recurrence of SRU++. Times are medians of a forward and a backward pass, in turn. `floor`:
three products of all queries with the keys of their segment (`local`), or of the batch; of cells, a
copy of all that is read and written. Without a GPU the kernels run in Triton's interpreter
(`TRITON_INTERPRET=1`), which tells nothing of their time.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from stages.memory.in_batch import log_sums
from stages.memory.in_batch.visible import earlier, others
from stages.models.backbones import sru_plus_plus as recurrence
from stages.models.computing import autocast, resolve_device
from tests.benchmarks.timing import times_in_turn

WORDS = 8192
"""Token types, drawn evenly."""


def memory(
    given: argparse.Namespace, device: torch.device
) -> tuple[Callable[[], object], Callable[[], object]]:
    """A pass over in-batch memory, and its floor."""
    own = torch.arange(given.positions, device=device)
    first = own - own % given.segment_length
    visible = {
        "local": lambda: earlier(first, own),
        "long": lambda: earlier(torch.zeros_like(own), own),
        "others": lambda: others(first, first + given.segment_length, own, len(own), local=False),
    }[given.case]()
    hidden = torch.randn(given.positions, given.width, device=device, requires_grad=True)
    words = torch.randint(WORDS, (given.positions,), device=device)
    together = given.segment_length if given.case == "local" else given.positions
    low = hidden.detach().to(torch.bfloat16 if given.precision == "bf16" else torch.float32)
    segments = low.view(-1, together, given.width)

    def step() -> None:
        with autocast(device, given.precision):
            both = log_sums.in_batch_log_sums(
                hidden, hidden, words, words, visible, given.width**-0.5
            )
        torch.autograd.backward(both, [(part.isfinite()).float() for part in both])
        hidden.grad = None
        finish(device)

    def floor() -> None:
        for part in segments:  # scores, and gradients of queries and of keys
            scores = part @ part.T
            scores @ part, scores.T @ part
        finish(device)

    return step, floor


def cells(
    given: argparse.Namespace, device: torch.device
) -> tuple[Callable[[], object], Callable[[], object]]:
    """A pass over the cells of a layer, and its floor."""
    length = given.segment_length
    rows = given.positions // length
    u, z = (
        torch.randn(length, rows, given.width, device=device, requires_grad=True) for _ in range(2)
    )
    v, before = (
        torch.randn(given.width, device=device),
        torch.zeros(rows, given.width, device=device),
    )
    seed = torch.randn(length, rows, given.width, device=device)

    def step() -> None:
        recurrence.cells(u, z, v, before).backward(seed)
        u.grad = z.grad = None
        finish(device)

    def floor() -> None:
        for part in (u, z, seed, seed):
            part.detach().clone()
        finish(device)

    return step, floor


def finish(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def by_triton(whether: bool) -> Iterator[None]:
    """While functions that have a kernel use it, or do not."""
    with (
        mock.patch.object(log_sums, "runs_triton", lambda device: whether),
        mock.patch.object(recurrence, "runs_triton", lambda device: whether),
    ):
        yield


def measure(given: argparse.Namespace) -> dict[str, Any]:
    device = resolve_device(given.device)
    torch.manual_seed(0)
    step, floor = (cells if given.case == "cells" else memory)(given, device)

    def way(whether: bool) -> Callable[[], None]:
        def run() -> None:
            with by_triton(whether):
                step()

        return run

    ways = {"triton": way(True), "pytorch": way(False), "floor": floor}
    taken = {name: one.wall for name, one in times_in_turn(ways, given.rounds).items()}
    bytes_more = {name: _peak(ways[name], device) for name in ("triton", "pytorch")}
    return {
        **{f"{name}, ms": 1000 * seconds for name, seconds in taken.items()},
        "to pytorch": taken["triton"] / taken["pytorch"],
        "of floor": taken["floor"] / taken["triton"],
        **{f"{name}, MB": taken / 2**20 for name, taken in bytes_more.items()},
    }


def _peak(step: Callable[[], None], device: torch.device) -> float:
    """Bytes that a step takes at most, beside what is there; 0 where the device does not count
    them.
    """
    if device.type != "cuda":
        return 0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=("local", "long", "others", "cells"))
    parser.add_argument("--positions", type=int, default=24576)
    parser.add_argument("--segment-length", type=int, default=3072)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    print(json.dumps(measure(parser.parse_args()), indent=1))


if __name__ == "__main__":
    main()
