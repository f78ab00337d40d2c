"""What an update takes of hashed n-grams, by rows of their tables: tables that learn by rows beside
whole ones.

    python -m tests.benchmarks.bench_host_tables [--rows 65536 1048576 4194304 --rounds 7]

The layer alone, of width 128, with eight tables of rows of 16 numbers; 2,048 tokens by Zipf's law,
one thread. An update is forward, backward, clipping and AdamW. The median of processor times, in
turn; and the peak of the bytes of all tensors that an update makes, counted operation by operation.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from stages.methods.method import ParameterGroup
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.layers.hashed_ngrams import HashedNgrams
from stages.models.layers.memory_settings import HashedNgramsSettings
from stages.training.config import OptimizerConfig
from stages.training.optimizer import clip, make_optimizer, set_learning_rates, split_groups
from tests.benchmarks.artificial import VOCABULARY, zipf
from tests.benchmarks.bench_replay import Alive

WIDTH, ROWS, LENGTH, TABLES = 128, 8, 256, 8


def updates(rows: int, by_rows: bool) -> tuple[Callable[[], None], list[Tensor]]:
    """The update of a layer whose tables have so many rows in all, and the tensors that outlive it."""
    torch.manual_seed(0)
    model = TransformerXLConfig(vocab_size=VOCABULARY, width=WIDTH)
    layer = HashedNgrams(model, HashedNgramsSettings(slots=rows // TABLES, on_host=by_rows))
    layer.initialize(1)
    groups = split_groups([ParameterGroup(list(layer.parameters()))], layer)
    optimizer = make_optimizer(OptimizerConfig(), groups)
    set_learning_rates(optimizer, 1e-3)
    tokens = torch.from_numpy(zipf(ROWS * LENGTH).astype("int64")).view(ROWS, LENGTH)
    x = torch.randn(ROWS, LENGTH, WIDTH)

    def update() -> None:
        layer(x, tokens, None, layer.begin(x))[0].square().mean().backward()
        clip([layer.table], 1.0)
        optimizer.step()
        optimizer.zero_grad()

    update()
    return update, [
        *layer.parameters(),
        *(one for state in optimizer.state.values() for one in state.values()),
    ]


def seconds(update: Callable[[], None]) -> float:
    began = time.process_time()
    update()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1 << 16, 1 << 20, 1 << 22])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| rows | by rows, ms | whole, ms | by rows, MB | whole, MB |\n|---|---|---|---|---|")
    for rows in given.rows:
        both = [updates(rows, by_rows) for by_rows in (True, False)]
        times = [[seconds(update) for update, _ in both] for _ in range(given.rounds)]
        peaks = []
        for update, there in both:
            with Alive(there) as alive:
                update()
            peaks.append(alive.peak)
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        cells = [f"{1000 * one:.0f}" for one in medians] + [f"{one / 1e6:.1f}" for one in peaks]
        print(f"| {rows:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
