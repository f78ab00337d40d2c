"""Training throughput against a minimal loop of the same shape.

    python -m tests.benchmarks.bench_training [--layers 4 --width 256 --heads 4 --vocabulary \\
        10000 --precision fp32]
        [--compile [--cuda-graphs]] [--nanogpt FOLDER]

The minimal loop is what nanoGPT does, without its logging: pre-norm blocks around
scaled_dot_product_attention, tied embeddings, F.cross_entropy over all scores, clipping and fused
AdamW. Scores are made in fp32 in both, whatever the precision of the blocks. Ours is `Trainer`,
validation and checkpoints aside. Both take turns in one process on the same data: one step each on
a CPU; on a GPU ten, at the end of which both wait for it, since it works while the host goes on.
The ratio is that of the median times, `cpu_ratio` that of processor times, which other programs
disturb less. `products` are the matrix products of a step alone, forward and backward, of the same
shapes and types, attention over half of all pairs of positions: the floor of the machine, of which
each row reaches `of_floor`. With --compile all stand there compiled too; `first_turn` are the
seconds of a first turn, compiling included, and `pays_after` the updates after which what it took
beyond that of the row it is compared with has been gained. With --nanogpt nanoGPT's own model and
optimizer take turns as well, in the same loop: the folder is a clone of karpathy/nanoGPT (see
`tests/peers`); in bf16 its scores are bf16 too.
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config as inductor

from stages.examples.examples import Task
from stages.methods import METHODS
from stages.methods.method import SideInputs
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.computing import autocast, resolve_device, tune_allocator
from stages.models.language_model import LanguageModel
from stages.reporting import Silent
from stages.training.config import OptimizerConfig, TrainConfig
from stages.training.journal import Course
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run
from tests.benchmarks.timing import Seconds, times_in_turn
from tests.peers.sources import load
from tests.stages.training.runs import Splits, streams

TURN = {"cpu": 1, "cuda": 10}
"""Steps of a turn."""
COMPILED = ", compiled"
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP = 3e-4, (0.9, 0.95), 0.1, 1.0


class MinimalBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.p = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, length, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(d, dim=2)
        q, k, v = (
            t.view(b, length, self.heads, d // self.heads).transpose(1, 2) for t in (q, k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).contiguous().view(b, length, d)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class MinimalModel(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, config.width)
        self.positions = nn.Embedding(length, config.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.drop = nn.Dropout(config.dropout)
        blocks = (
            MinimalBlock(config.width, config.heads, config.dropout) for _ in range(config.layers)
        )
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        places = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.norm(self.blocks(self.drop(self.tokens(inputs) + self.positions(places))))
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.tokens.weight)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.flatten())


def on_device(ids: Tensor, device: torch.device) -> Tensor:
    """Ids of the CPU on a device; a GPU copies them while the host goes on, as in ours."""
    return (
        ids.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ids.to(device)
    )


def minimal_steps(
    config: TrainConfig, splits: Splits, vocabulary: int, device: torch.device, turn: int = 1
) -> Callable[[], None]:
    """A turn of the minimal loop, on segments drawn and losses read as nanoGPT does: these now and
    then.
    """
    assert isinstance(config.model, TransformerConfig)
    model = MinimalModel(config.model, vocabulary, config.segment_length).to(device)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, LEARNING_RATE, BETAS, fused=True)
    return loop(model, optimizer, config, splits, device, turn)


def nanogpt_steps(
    folder: Path,
    config: TrainConfig,
    splits: Splits,
    vocabulary: int,
    device: torch.device,
    turn: int = 1,
) -> Callable[[], None]:
    """A turn of nanoGPT's model with its own optimizer."""
    network, shape = load(folder / "model.py", "nanogpt"), config.model
    assert isinstance(shape, TransformerConfig)
    sizes = (
        config.segment_length,
        vocabulary,
        shape.layers,
        shape.heads,
        shape.width,
        shape.dropout,
        True,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        model = network.GPT(network.GPTConfig(*sizes)).to(device)
        optimizer = model.configure_optimizers(WEIGHT_DECAY, LEARNING_RATE, BETAS, device.type)
    return loop(model, optimizer, config, splits, device, turn)


def loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    splits: Splits,
    device: torch.device,
    turn: int,
) -> Callable[[], None]:
    """A turn of nanoGPT's loop; the model gives a loss, or scores and a loss, for inputs and
    targets.
    """
    forward: Callable[[Tensor, Tensor], Any] = (
        torch.compile(model, dynamic=False) if config.compile else model
    )
    length, rows = config.segment_length, config.batch_tokens // config.segment_length

    def step() -> Tensor:
        starts = torch.randint(len(splits.train) - length, (rows,)).tolist()
        x, y = (
            torch.stack(
                [
                    torch.from_numpy(splits.train[i + shift : i + shift + length].astype(np.int64))
                    for i in starts
                ]
            )
            for shift in (0, 1)
        )
        with autocast(device, config.precision):
            found = forward(on_device(x, device), on_device(y, device))
        loss: Tensor = found if isinstance(found, Tensor) else found[1]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def steps() -> None:
        for _ in range(turn):
            loss = step()
        loss.item()

    return steps


def product_steps(
    config: TrainConfig, vocabulary: int, device: torch.device, turn: int = 1
) -> Callable[[], None]:
    """A turn of the matrix products of a step: each forward, and for the gradients of both of its
    factors.
    """
    shape, tokens, length = config.model, config.batch_tokens, config.segment_length
    assert isinstance(shape, TransformerConfig)
    blocks = torch.bfloat16 if config.precision == "bf16" else torch.float32
    width, wide, half = shape.width, shape.ffn_width, length // 2
    heads, size = shape.heads * tokens // length, shape.width // shape.heads
    linear = ((width, 3 * width), (width, width), (width, wide), (wide, width))
    factors: list[tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]] = [
        *((shape.layers, blocks, (tokens, rows), (rows, columns)) for rows, columns in linear),
        (shape.layers, blocks, (heads, length, size), (heads, size, half)),
        (shape.layers, blocks, (heads, length, half), (heads, half, size)),
        (1, torch.float32, (tokens, width), (width, vocabulary)),
    ]
    products = []
    for times, dtype, left, right in factors:
        a, b = (torch.randn(*sizes, dtype=dtype, device=device) for sizes in (left, right))
        products.append((times, a, b, a @ b, torch.empty_like(a), torch.empty_like(b)))

    def steps() -> None:
        for _ in range(turn):
            for times, a, b, product, of_a, of_b in products:
                for _ in range(times):
                    torch.matmul(a, b, out=product)
                    torch.matmul(product, b.mT, out=of_a)
                    torch.matmul(a.mT, product, out=of_b)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return steps


def our_steps(
    config: TrainConfig,
    splits: Splits,
    folder: Path,
    device: torch.device,
    side_inputs: SideInputs | None = None,
    turn: int = 1,
) -> Callable[[], None]:
    """A turn of `Trainer`, its reports included."""
    method = METHODS.load(config.method)(config.method_settings, side_inputs)
    tasks = [Task("train", streams(config, splits)[0])]
    run = Run(
        make_fabric(device),
        config,
        LanguageModel(config.model),
        method,
        tasks,
        None,
        folder,
        Silent(),
        1e9,
    )
    trainer = Trainer(run)
    with ExitStack() as stack:  # the journal is closed: nothing is kept of what is timed
        course = Course(run, trainer.progress, trainer.order.update_tokens, stack)
    course.journal = None

    def steps() -> None:
        for _ in range(turn):
            trainer._update()
            trainer._report(course)
        trainer._flush_losses()

    return steps


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    device = resolve_device(arguments.device)
    tune_allocator()
    torch.manual_seed(0)
    config = TrainConfig(
        model=TransformerConfig(
            vocab_size=arguments.vocabulary,
            layers=arguments.layers,
            width=arguments.width,
            heads=arguments.heads,
            ffn_width=4 * arguments.width,
            max_positions=arguments.segment_length,
            dropout=arguments.dropout,
        ),
        optimizer=OptimizerConfig(lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY),
        segment_length=arguments.segment_length,
        batch_tokens=arguments.batch_tokens,
        clip_norm=CLIP,
        steps=1_000_000,
        valid_every=0,
        precision=arguments.precision,
    )
    zipf = np.minimum(np.random.default_rng(0).zipf(1.3, 1_000_000), arguments.vocabulary) - 1
    splits = Splits(zipf.astype(np.uint16), None, 0)
    if arguments.cuda_graphs:
        inductor.triton.cudagraphs = True
    variants = {"": config} | (
        {COMPILED: config.model_copy(update={"compile": True})} if arguments.compile else {}
    )
    with tempfile.TemporaryDirectory() as name:
        turn, folder = arguments.turn or TURN[device.type], Path(name)
        steps = {}
        for suffix, chosen in variants.items():
            steps[f"ours{suffix}"] = our_steps(chosen, splits, folder, device, turn=turn)
            steps[f"minimal{suffix}"] = minimal_steps(
                chosen, splits, arguments.vocabulary, device, turn
            )
            if arguments.nanogpt:
                given = arguments.nanogpt, chosen, splits, arguments.vocabulary, device, turn
                steps[f"nanogpt{suffix}"] = nanogpt_steps(*given)
        steps["products"] = product_steps(config, arguments.vocabulary, device, turn)
        first = {name: seconds(step) for name, step in steps.items()}
        taken = times_in_turn(steps, arguments.rounds)
    rows = {
        name: row(taken, name, config.batch_tokens * turn) | {"first_turn": first[name]}
        for name in steps
    }
    for name in [name for name in steps if name + COMPILED in steps]:
        gained = (taken[name].wall - taken[name + COMPILED].wall) / turn
        spent = first[name + COMPILED] - first[name]
        rows[name + COMPILED]["pays_after"] = round(spent / gained) if gained > 0 else None
    return {**rows, "threads": torch.get_num_threads(), "device": str(device)}


def row(taken: dict[str, Seconds], name: str, tokens: int) -> dict[str, Any]:
    """Of one of the things timed, whose turns read so many tokens, beside the minimal loop and the
    products alone.
    """
    own, minimal, products = taken[name], taken["minimal"], taken["products"]
    return {
        "tokens_per_second": round(tokens / own.wall, 1),
        "ratio": round(minimal.wall / own.wall, 3),
        "cpu_ratio": round(minimal.cpu / own.cpu, 3),
        "of_floor": round(products.wall / own.wall, 3),
    }


def seconds(step: Callable[[], None]) -> float:
    """The time of one."""
    started = time.perf_counter()
    step()
    return round(time.perf_counter() - started, 2)


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--segment-length", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compile", action="store_true", help="both compiled, too")
    parser.add_argument(
        "--cuda-graphs", action="store_true", help="what is compiled is replayed as CUDA graphs"
    )
    parser.add_argument("--turn", type=int, help="steps of a turn (1 on a CPU, 10 on a GPU)")
    parser.add_argument(
        "--nanogpt", type=Path, metavar="FOLDER", help="a clone of karpathy/nanoGPT"
    )
    return parser.parse_args(words)


def main() -> None:
    print(json.dumps(measure(arguments_of())))


if __name__ == "__main__":
    main()
