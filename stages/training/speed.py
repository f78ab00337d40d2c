"""Speed of training on this machine, measured on a few updates. No artifact depends
on it.
"""

import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from stages.examples.examples import Task
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.models.computing import resolve_device
from stages.models.devices import resolve_precision
from stages.models.language_model import LanguageModel
from stages.reporting import Silent
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run

WARM_UP = 2
"""Updates before timing starts: the first ones take longer, while memory is allocated."""
MIN_UPDATES = 6
MAX_UPDATES = 180
"""Minimum and maximum number of timed updates; a fast machine reaches the maximum before the time
is over.
"""
ENOUGH_SECONDS = 6.0
MAX_SECONDS = 20.0
"""Seconds of timed updates that suffice; and seconds in all after which timing ends, even with too
few updates.
"""
SLOW_SECONDS = 3.0
SLOW_FACTOR = 2.0
"""Seconds of timed updates after which timing ends if the machine is slower than `least` by this
factor.
"""
PARTS = 3
"""Parts of the timed updates. The speed is the median over them, because a machine may be busy for
some seconds.
"""


class _Stopwatch(Silent):
    """Records when each update ends, and stops training when enough updates are timed.

    Args:
        least: updates per second that a machine must reach to be of use.
    """

    def __init__(self, min_speed: float) -> None:
        self._too_slow = min_speed / SLOW_FACTOR
        self._began = time.monotonic()
        self._ends: list[float] = []

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        self._ends.append(time.monotonic())
        timed = len(self._ends) - WARM_UP
        seconds = self._ends[-1] - self._ends[WARM_UP - 1] if timed > 0 else 0.0
        late = len(self._ends) > 1 and self._ends[-1] - self._began >= MAX_SECONDS
        slow = seconds >= SLOW_SECONDS and timed < self._too_slow * seconds
        if (
            (timed >= MIN_UPDATES and seconds >= ENOUGH_SECONDS)
            or timed >= MAX_UPDATES
            or late
            or slow
        ):
            raise _EnoughError

    def updates_per_second(self) -> float:
        warm = min(WARM_UP, len(self._ends) - 1)
        ends = self._ends[warm - 1 :]
        parts = min(PARTS, len(ends) - 1)
        bounds = [round(part * (len(ends) - 1) / parts) for part in range(parts + 1)]
        pairs = pairwise(bounds)
        return median((last - first) / max(ends[last] - ends[first], 1e-9) for first, last in pairs)


class _EnoughError(Exception):
    """Raised to stop a timed training."""


def training_speed(
    config: TrainConfig, vocabulary: int, device: str, min_speed: float = 0.0
) -> float:
    """Tokens per second of training, measured on random tokens.

    Args:
        config: settings of training, with a method that learns from tokens alone.
        vocabulary: number of token types.
        device: auto, cpu or cuda.
        min_speed: tokens per second below which the speed is too low to be of use; far below it, timing
        ends early.
    """
    place = resolve_device(device)
    timed = config.model_copy(
        update={
            "model": config.model.sized(vocabulary, config.segment_length),
            "precision": resolve_precision(config.precision, place.type),
            "compile": False,  # Compiling would take longer than the measurement.
            "steps": WARM_UP + MAX_UPDATES,
        }
    )
    ids = np.random.default_rng(0).integers(vocabulary, size=MIN_UPDATES * config.batch_tokens)
    method = METHODS.load(timed.method)(timed.method_settings)
    model = LanguageModel(timed.model)
    tasks = [Task("train", Streams(ids, 0, timed.cutting))]
    stopwatch = _Stopwatch(min_speed / (timed.batch_tokens * timed.accumulate))
    with TemporaryDirectory() as folder:
        trainer = Trainer(
            Run(
                make_fabric(place),
                timed,
                model,
                method,
                tasks,
                None,
                Path(folder),
                stopwatch,
                3600.0,
            )
        )
        with suppress(_EnoughError):
            trainer.train()
    return stopwatch.updates_per_second() * trainer.order.update_tokens
