"""Workloads of memlm on made data of a fixed size: search, a training step, tokenizing."""

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.examples.examples import Task
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.models.backbones.transformer_config import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.windows import WindowSettings
from stages.reporting import Silent
from stages.search.automatic import resolve
from stages.search.config import IndexConfig, Keys
from stages.search.factory import empty_index
from stages.search.open import searcher_of
from stages.search.searcher import Searcher
from stages.speed.kernels import Kernel, Sizes
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.run import Run

FOUND_BYTES = 12
"""A row and a distance."""


class MadeIndex:
    """Keys around random centres in float16, in lists around some of them, and queries that are moved keys."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        random, dim = np.random.default_rng(0), sizes.key_dim
        centres = random.standard_normal((sizes.lists, dim), np.float32)
        keys = centres[random.integers(sizes.lists, size=sizes.keys)]
        keys += 0.7 * random.standard_normal(keys.shape, np.float32)
        config = IndexConfig(index="ivf-flat", lists=sizes.lists, probe=sizes.probe)
        self.index = empty_index(resolve(config, Keys(sizes.keys, dim, "float16")), dim, "float16")
        self.index.quantizer.add(centres)
        self.index.is_trained = True
        self.index.add(keys)
        self.queries = keys[random.integers(sizes.keys, size=sizes.queries)]
        self.queries += 0.1 * random.standard_normal(self.queries.shape, np.float32)
        self.sizes, self.device = sizes, device

    def searcher(self) -> Searcher:
        return searcher_of(self.index, "l2", self.sizes.probe, self.device.type)

    def compared(self) -> int:
        """Pairs of a query and a key of the lists that it reads."""
        lengths = np.array([self.index.invlists.list_size(number) for number in range(self.index.nlist)])
        return int(lengths[self.index.quantizer.search(self.queries, self.sizes.probe)[1]].sum())


def search(made: MadeIndex, k: int) -> Kernel:
    """A block of queries against an IVF index.

    Operations: 2 d for every centre and every key of the lists that a query reads. Bytes: keys once in float16, what is
    found. Choosing the k best is none of either.
    """
    searcher, sizes = made.searcher(), made.sizes
    operations = 2.0 * sizes.key_dim * (sizes.queries * sizes.lists + made.compared())
    moved = 2.0 * sizes.keys * sizes.key_dim + float(FOUND_BYTES) * k * sizes.queries

    def run() -> None:
        searcher.search(made.queries, k)

    return Kernel(f"search, k = {k:,}", "queries/s", sizes.queries, run, operations, moved)


def training(sizes: Sizes, device: torch.device, precision: str, folder: Path) -> Kernel:
    """Steps of a Transformer, from drawing a batch to new weights; neither making the model counts nor saving it.

    Operations: 6 a token for every weight that products use, and 12 x layers x width x half a segment in attention
    (Kaplan et al. 2020, appendix B; forward 1, backward 2). Bytes: weights and their gradients, and two moments, each
    read and written once a step, in fp32.
    """
    config = _train_config(sizes, precision)
    ids = np.minimum(np.random.default_rng(0).zipf(1.3, 64 * sizes.batch), sizes.vocabulary) - 1
    cutting = config.model.cutting(WindowSettings(config.segment_length, config.segment_length))
    tasks, numbers = [Task("train", Streams(ids.astype(np.uint16), 0, cutting))], count()

    def run() -> float:
        place = folder / f"train-{precision}-{next(numbers)}"
        place.mkdir()
        method = METHODS.load(config.method)(config.method_settings, None)
        fabric, model = make_fabric(device), LanguageModel(config.model)
        return Trainer(Run(fabric, config, model, method, tasks, None, place, Silent(), 1e9)).train().seconds

    weights = sizes.layers * 12 * sizes.width**2 + sizes.vocabulary * sizes.width
    attention = 12 * sizes.layers * sizes.width * sizes.segment / 2
    tokens = sizes.steps * sizes.batch
    return Kernel(
        f"training, {precision}",
        "tokens/s",
        tokens,
        run,
        operations=tokens * (6.0 * weights + attention),
        moved=sizes.steps * weights * 4.0 * 2 * 4,
        precision=precision,
    )


def _train_config(sizes: Sizes, precision: str) -> TrainConfig:
    model = TransformerConfig(
        vocab_size=sizes.vocabulary,
        layers=sizes.layers,
        width=sizes.width,
        heads=max(1, sizes.width // 64),
        ffn_width=4 * sizes.width,
        max_positions=sizes.segment,
    )
    settings: dict[str, Any] = {"segment_length": sizes.segment, "batch_tokens": sizes.batch, "steps": sizes.steps}
    return TrainConfig(model=model, valid_every=0, precision=precision, **settings)


def tokenize(sizes: Sizes, tokenizer: str, folder: Path) -> Kernel:
    """`memlm tokenize` of a made text, with all that it writes; the vocabulary is made as well."""
    text, numbers = folder / "text.txt", count()
    _write_text(text, sizes.megabytes)
    config = TokenizeConfig(tokenizer=tokenizer, **({"vocab_size": 4096} if tokenizer == "bpe" else {"min_count": 1}))

    def run() -> None:
        store = Store(folder / f"{tokenizer}-{next(numbers)}")
        make(Tokenize(), config, {"train": [str(text)]}, store, Execution("cpu"))

    return Kernel(f"tokenize, {tokenizer}", "MB/s", text.stat().st_size / 1e6, run)


def _write_text(path: Path, megabytes: float) -> None:
    """Lines of 50 words drawn from 20,000 with Zipf's frequencies."""
    random, weights = np.random.default_rng(0), 1 / np.arange(1, 20_001)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            words = random.choice(20_000, (200, 50), p=weights / weights.sum())
            file.writelines(" ".join(f"w{word}" for word in line) + "\n" for line in words.tolist())
