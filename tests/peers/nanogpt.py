"""nanoGPT: its network with memlm's weights, and the losses of its own `train.py` against those of
memlm's trainer.

`train.py` runs as it is, on a file of memlm's tokens.
"""

import contextlib
import io
import pickle
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.examples.examples import Batch, Examples
from stages.methods.lm import LanguageModeling
from stages.methods.method import BatchIndex
from stages.methods.settings import LmConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.reporting import Silent
from stages.training.config import OptimizerConfig, ScheduleConfig, TrainConfig
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, load
from tests.stages.training.runs import Splits, trainer_of

PEER = Peer(
    name="nanoGPT",
    address="karpathy/nanoGPT",
    commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    made_equal="memlm's factor √d of embeddings is 1; memlm counts warm-up and cosine from 1, so its warm-up is theirs "
    "and one, and their lr_decay_iters the updates less one",
    patched="GPT begins with memlm's weights, in float64; torch.randint gives the places of memlm's batches",
)

V, WIDTH, HEADS, LAYERS, LENGTH = 17, 16, 2, 2, 12
ROWS, ACCUMULATED, UPDATES, WARMUP = 4, 2, 60, 7
RATE, FINAL, DECAY, BETAS, CLIP = 0.01, 0.1, 0.1, (0.9, 0.95), 0.5
EOS, TOKENS = 0, 1500
TRAINED = 1e-8
"""Of 60 updates: Adam divides by the root of small moments, which raises what sums in another order
differ by.
"""


def comparisons(source: Path) -> Iterator[Agreement]:
    sizes = f"{LAYERS} layers, d {WIDTH}, V {V}, float64"
    with contextlib.redirect_stdout(io.StringIO()):
        network = load(source / "model.py", "model")
        log_p, gradient = _forward(network)
        curve, weights = _trained(source, network)
    yield Agreement("-log p of each token", f"{ROWS} x {LENGTH} tokens, {sizes}", log_p)
    yield Agreement("gradients", f"{ROWS} x {LENGTH} tokens, {sizes}", gradient)
    yield Agreement("losses of training", f"{UPDATES} updates of AdamW, {sizes}", curve, TRAINED)
    yield Agreement("weights after it", f"{UPDATES} updates of AdamW, {sizes}", weights, TRAINED)


# The network


def _forward(network: ModuleType) -> tuple[float, float]:
    model, theirs = _model(), _theirs(network)
    made = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randint(0, V, (ROWS, LENGTH), generator=made) for _ in range(2))
    hidden = model.encode(inputs).hidden.flatten(0, 1)
    ours = -model.log_prob(hidden, targets.flatten())[0]
    logits, other = functional_call(theirs, _weights(model), (inputs, targets))
    costs = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    loss = model.loss(hidden, targets.flatten())
    parameters = list(model.parameters())
    return difference([ours], [costs]), difference(
        gradients(loss, parameters), gradients(other, parameters)
    )


def _model() -> LanguageModel:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": V,
        "width": WIDTH,
        "heads": HEADS,
        "layers": LAYERS,
        "ffn_width": 4 * WIDTH,
    }
    model = LanguageModel(TransformerConfig(**sizes, max_positions=LENGTH, dropout=0.0)).double()
    model.backbone.scale = 1.0
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            nn.init.normal_(weight, mean=float(name.endswith("weight")), std=0.2)
    return model


def _theirs(network: ModuleType) -> nn.Module:
    theirs: nn.Module = network.GPT(network.GPTConfig(LENGTH, V, LAYERS, HEADS, WIDTH, 0.0, True))
    return theirs.double()


def _weights(model: LanguageModel) -> dict[str, Tensor]:
    """memlm's, by their names."""
    vocabulary: Any = model.vocabulary
    backbone: Any = model.backbone
    layers = {"ln_f": backbone.norm}
    for number, block in enumerate(backbone.blocks):
        layers |= {
            f"h.{number}.ln_1": block.attention_norm,
            f"h.{number}.attn.c_attn": block.attention.qkv,
            f"h.{number}.attn.c_proj": block.attention.out,
            f"h.{number}.ln_2": block.ffn_norm,
            f"h.{number}.mlp.c_fc": block.ffn.up,
            f"h.{number}.mlp.c_proj": block.ffn.down,
        }
    parts = (
        (f"transformer.{name}.{part}", getattr(layer, part))
        for name, layer in layers.items()
        for part in KINDS
    )
    tables = {
        "transformer.wte.weight": vocabulary.embedding,
        "transformer.wpe.weight": backbone.positions.learned,
    }
    return tables | dict(parts)


KINDS = ("weight", "bias")


# Training


def _trained(source: Path, network: ModuleType) -> tuple[float, float]:
    """How far apart losses of updates lie, and weights after them."""
    model = _model()
    begin = {name: weight.detach().clone() for name, weight in _weights(model).items()}
    with tempfile.TemporaryDirectory() as folder:
        segments, ours = _train_ours(model, Path(folder))
        losses, theirs = _train_theirs(source, network, begin, segments, Path(folder))
    updates = torch.tensor(losses, dtype=torch.float64).view(-1, ACCUMULATED).mean(1)
    weights = _weights(model)
    other = dict(theirs.named_parameters())
    return (
        difference([torch.tensor(ours, dtype=torch.float64)], [updates]),
        difference(weights.values(), [other[name] for name in weights]),
    )


def _tokens() -> np.ndarray:
    steps = np.random.default_rng(0).integers(1, 4, TOKENS)
    return (np.cumsum(steps) % V).astype(np.uint16)


def _train_ours(model: LanguageModel, folder: Path) -> tuple[list[np.ndarray], list[float]]:
    """The segments of memlm's batches, and the losses of its updates."""
    config = TrainConfig(
        model=model.config,
        optimizer=OptimizerConfig(lr=RATE, betas=BETAS, weight_decay=DECAY),
        schedule=ScheduleConfig(warmup=WARMUP + 1, final=FINAL),
        segment_length=LENGTH,
        batch_tokens=ROWS * LENGTH,
        accumulate=ACCUMULATED,
        clip_norm=CLIP,
        steps=UPDATES,
        valid_every=0,
        log_every=1,
        precision="fp32",
    )
    losses, method = _Losses(), _Watched(config.method_settings)
    trainer_of(config, method, Splits(_tokens(), None, EOS), folder, losses, model=model).train()
    return method.segments, losses.losses


class _Losses(Silent):
    """Of each update."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def progress(self, done: int, total: int, unit: str, **figures: Any) -> None:
        self.losses.append(figures["loss"])


class _Watched(LanguageModeling):
    """Keeps what each batch was made of."""

    def __init__(self, settings: LmConfig) -> None:
        super().__init__(settings)
        self.segments: list[np.ndarray] = []

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        self.segments.append(which)
        return super().batch(examples, which, index)


def _train_theirs(
    source: Path,
    network: ModuleType,
    begin: dict[str, Tensor],
    segments: list[np.ndarray],
    folder: Path,
) -> tuple[list[float], nn.Module]:
    """Losses of their forward passes, and their network after the last update."""
    np.concatenate(([EOS], _tokens())).astype(np.uint16).tofile(folder / "train.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": V}))
    losses: list[float] = []

    class Recorded(network.GPT):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.double().load_state_dict(
                begin | {"lm_head.weight": begin["transformer.wte.weight"]}
            )

        def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
            logits, loss = super().forward(*batch)
            losses.append(float(loss.detach()))
            return logits, loss

    batches = iter([*segments, segments[-1]])  # they fetch one that they do not read

    with (
        patch.object(network, "GPT", Recorded),
        importable({"model": network}),
        patch.object(sys, "argv", ["train.py", *_options(folder)]),
        patch.object(torch, "randint", lambda high, size: torch.from_numpy(next(batches) * LENGTH)),
        contextlib.chdir(source),
        torch.random.fork_rng(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter(
            "ignore"
        )  # the old name of the gradient scaler; the mean of no validation losses
        ran = load(source / "train.py", "train")
    return losses, ran.model


def _options(folder: Path) -> Iterator[str]:
    options = {
        "device": "cpu",
        "dtype": "float32",
        "compile": False,
        "out_dir": folder / "out",
        "dataset": folder,
        "eval_iters": 0,
        "eval_interval": UPDATES + 1,
        "batch_size": ROWS,
        "block_size": LENGTH,
        "gradient_accumulation_steps": ACCUMULATED,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": WIDTH,
        "bias": True,
        "learning_rate": RATE,
        "max_iters": UPDATES - 1,
        "weight_decay": DECAY,
        "beta1": BETAS[0],
        "beta2": BETAS[1],
        "grad_clip": CLIP,
        "warmup_iters": WARMUP,
        "lr_decay_iters": UPDATES - 1,
        "min_lr": RATE * FINAL,
    }
    return (f"--{name}={value}" for name, value in options.items())
