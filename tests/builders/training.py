"""Small runs of the training loop, and crashes in them."""

import json

import numpy as np

from stages.methods import METHODS
from stages.models.backbones.window_configs import TransformerConfig
from stages.reporting import Silent
from stages.training.checkpoint import best_weights
from stages.training.config import OptimizerConfig, ScheduleConfig, TrainConfig
from tests.stages.training.runs import Splits, trainer_of

V = 12


class Notes(Silent):
    """Keeps what it is told, and calls `at(step)` after each step."""

    def __init__(self, at=lambda step: None):
        self.messages, self.steps, self.at = [], [], at

    def info(self, message):
        self.messages.append(message)

    warning = info

    def progress(self, done, total, unit, **figures):
        self.steps.append(done)
        self.figures = figures
        self.at(done)


def settings(**changes):
    defaults = {
        "model": TransformerConfig(
            vocab_size=V,
            layers=1,
            width=8,
            heads=2,
            ffn_width=16,
            max_positions=8,
            cutoffs=(4, 8),
            factor=2,
        ),
        "optimizer": OptimizerConfig(lr=0.02, weight_decay=0.01),
        "schedule": ScheduleConfig(warmup=3, final=0.1),
        "segment_length": 8,
        "batch_tokens": 32,
        "steps": 20,
        "valid_every": 6,
        "log_every": 4,
        "precision": "fp32",
        "clip_norm": 1.0,
    }
    return TrainConfig(**defaults | changes)


def splits(tokens=300, valid=37):
    random = np.random.default_rng(0)
    ids = np.cumsum(random.integers(1, 3, tokens + valid)) % V
    return Splits(
        ids[:tokens].astype(np.uint16), ids[tokens:].astype(np.uint16) if valid else None, 0
    )


def trainer(folder, notes=None, data=None, checkpoint_seconds=1e9, **changes):
    config = settings(**changes)
    method = METHODS.load(config.method)(config.method_settings)
    return trainer_of(
        config, method, data or splits(), folder, notes or Notes(), checkpoint_seconds
    )


def journal(folder):
    """Lines of training.jsonl without the field that tells the machine's speed."""
    lines = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


def outcome(folder, run):
    """All that must not depend on interruptions."""
    best = (folder / best_weights(run.progress.valid_step)).read_bytes()
    state = {name: tensor.numpy().tobytes() for name, tensor in run.run.model.state_dict().items()}
    return state, best, journal(folder)


class Crash(BaseException):
    """A process that is killed: nothing is saved."""


def crash_at(n):
    def at(step):
        if step == n:
            raise Crash

    return at
