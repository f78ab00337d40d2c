"""What one more token takes of MemSizer and of softmax attention, behind windows of more and more
tokens.

    python -m tests.benchmarks.bench_memsizer [--width 256 --heads 4 --slots 32 --rounds 50]
    python -m tests.benchmarks.bench_memsizer --generate [--width 128 --rounds 5]

Each layer reads token t + 1 with what it keeps of the t before it: MemSizer its slots' sums,
softmax attention the keys and values of all. Layers and lengths are timed in turn, some tokens at a
time, one stream, one thread. A row of the table: the median of processor time a token, as a
multiple of MemSizer's behind the shortest window, and the bytes that are kept.

With `--generate`: a token that `memlm generate` writes behind texts of such lengths, of two layers
from random weights and one window that holds the text. MemSizer goes on from its sums; softmax
attention has its window read anew.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.artifacts.store import Store
from stages.generation.generate import open_writer
from stages.generation.session import TextSession
from stages.inspection.request import Request
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers.memory_settings import MemSizerSettings
from stages.models.layers.memsizer import MemSizer
from stages.models.layers.settings import SoftmaxSettings
from stages.models.layers.softmax import SoftmaxAttention
from tests.stages.small_store import ModelConfig
from tests.stages.small_text import text_model, text_tokens

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
BURST = 10
"""Tokens that are timed together."""


def summing(layer: MemSizer, x: Tensor) -> tuple[Callable[[Tensor], Tensor], int]:
    """A reader of the token behind a window [1, t, d], and the bytes that it keeps."""
    _, before = layer.continue_window(x, layer.begin(x), 0)
    return lambda token: layer.continue_window(token, before, x.shape[1])[0], before.values.nbytes


def caching(layer: SoftmaxAttention, x: Tensor) -> tuple[Callable[[Tensor], Tensor], int]:
    """The same of softmax attention, with room for one more key and value."""

    def projected(tokens: Tensor) -> list[Tensor]:
        return [
            part.transpose(1, 2)
            for part in layer.qkv(tokens).unflatten(-1, (3, layer.heads, -1)).unbind(2)
        ]

    keys, values = (F.pad(part, (0, 0, 0, 1)).contiguous() for part in projected(x)[1:])

    def read(token: Tensor) -> Tensor:
        query, keys[:, :, -1:], values[:, :, -1:] = projected(token)
        found: Tensor = layer.out(
            F.scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(2)
        )
        return found

    return read, keys.nbytes + values.nbytes


def measured(width: int, heads: int, slots: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Seconds a token and bytes kept, by layer and length."""
    torch.manual_seed(0)
    config = TransformerConfig(width=width, heads=heads)
    sizer, attention = (
        MemSizer(config, MemSizerSettings(slots=slots)),
        SoftmaxAttention(config, SoftmaxSettings()),
    )
    for layer in (sizer, attention):
        layer.initialize(1)
    made: dict[tuple[str, int], tuple[Callable[[Tensor], Tensor], int]] = {}
    for length in LENGTHS:
        x = torch.randn(1, length, width)
        made["MemSizer", length], made["softmax", length] = summing(sizer, x), caching(attention, x)
    token, times = torch.randn(1, 1, width), {case: list[float]() for case in made}
    for _ in range(rounds):
        for case, (read, _) in made.items():
            read(token)  # so that the case before leaves no cold caches to this one
            began = time.process_time()
            for _ in range(BURST):
                read(token)
            times[case].append((time.process_time() - began) / BURST)
    for (name, length), (_, kept) in made.items():
        yield {
            "layer": name,
            "length": length,
            "seconds": statistics.median(times[name, length]),
            "bytes": kept,
        }


def written(width: int, heads: int, slots: int, rounds: int) -> None:
    """Print processor time a token that is written, by attention and length."""
    times: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        tokens = text_tokens(store, Path(folder))
        sessions = dict[tuple[str, int], TextSession]()
        for name in ("memsizer", "softmax"):
            attention = {"name": name} | ({"slots": slots} if name == "memsizer" else {})
            sizes = {
                "width": width,
                "heads": heads,
                "ffn_width": 4 * width,
                "layers": 2,
                "positions": "sinusoidal",
            }
            model = text_model(
                store, tokens, ModelConfig().model | sizes | {"attention": attention}
            )
            request = Request(
                source=model.reference, memory=("none",), context=2 * LENGTHS[-1], device="cpu"
            )
            ids = (
                np.random.default_rng(0)
                .integers(0, int(tokens.metrics["vocabulary_size"]), LENGTHS[-1])
                .tolist()
            )
            for length in LENGTHS:
                sessions[name, length] = session = TextSession(open_writer(request, store))
                session.add(ids[:length])
                session.put(session.texts, session.step().argmax(1).tolist())
        for _ in range(rounds):
            for case, session in sessions.items():
                began = time.process_time()
                session.put(session.texts, session.step().argmax(1).tolist())
                times.setdefault(case, []).append(time.process_time() - began)
    unit = statistics.median(times["memsizer", LENGTHS[0]])
    print(f"{unit * 1e3:.1f} ms a token of MemSizer behind {LENGTHS[0]} tokens\n")
    print("| tokens before | MemSizer | softmax attention |\n|---|---|---|")
    for length in LENGTHS:
        both = [statistics.median(times[name, length]) / unit for name in ("memsizer", "softmax")]
        print(f"| {length:,} | {both[0]:.2f} | {both[1]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, usual in (("width", 256), ("heads", 4), ("slots", 32), ("rounds", 50)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--generate", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.generate:
        return written(given.width, given.heads, given.slots, given.rounds)
    del given.generate
    with torch.no_grad():
        rows = {(row["layer"], row["length"]): row for row in measured(**vars(given))}
    unit = rows["MemSizer", LENGTHS[0]]["seconds"]
    print(f"{unit * 1e6:.0f} µs a token of MemSizer behind {LENGTHS[0]} tokens\n")
    print(
        "| tokens before | MemSizer, time | softmax, time | MemSizer, KiB | softmax, KiB |\n|---|---|---|---|---|"
    )
    for length in LENGTHS:
        both = [rows[name, length] for name in ("MemSizer", "softmax")]
        cells = [f"{row['seconds'] / unit:.2f}" for row in both] + [
            f"{row['bytes'] / 1024:,.0f}" for row in both
        ]
        print(f"| {length:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
