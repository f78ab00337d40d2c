"""Speed of training on this machine, measured on a few updates for forecasts. No artifact depends on it."""

import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from stages.reporting import Silent
from stages.training.config import TrainConfig

WARM_UP = 2
"""Updates before those that are timed: the first take longer, while memory is found for them."""
FEWEST, MOST = 6, 180
"""Updates that are timed; of so many on a fast machine that those of less time are enough."""
ENOUGH, LONGEST = 6.0, 20.0
"""Seconds of updates that tell the speed; and of all together after which fewer must do, since nobody waits longer."""
A_FEW, FAR = 3.0, 2.0
"""Seconds of updates after which a machine is timed no longer that is slower than the least by so large a factor."""
PARTS = 3
"""Number of parts of the time, each with its speed, of which the median is taken: a machine is busy for some
seconds, then less."""


class _Stopwatch(Silent):
    """Notes when each update ends, and ends the training once enough of them are timed.

    Args:
        least: updates a second, of which a machine must do more to be of use.
    """

    def __init__(self, least: float) -> None:
        self._hopeless = least / FAR
        self._began = time.monotonic()
        self._ends: list[float] = []

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        self._ends.append(time.monotonic())
        timed = len(self._ends) - WARM_UP
        seconds = self._ends[-1] - self._ends[WARM_UP - 1] if timed > 0 else 0.0
        late = len(self._ends) > 1 and self._ends[-1] - self._began >= LONGEST
        slow = seconds >= A_FEW and timed < self._hopeless * seconds
        if (timed >= FEWEST and seconds >= ENOUGH) or timed >= MOST or late or slow:
            raise _EnoughError

    def updates_per_second(self) -> float:
        warm = min(WARM_UP, len(self._ends) - 1)
        ends = self._ends[warm - 1 :]
        parts = min(PARTS, len(ends) - 1)
        bounds = [round(part * (len(ends) - 1) / parts) for part in range(parts + 1)]
        pairs = pairwise(bounds)
        return median((last - first) / max(ends[last] - ends[first], 1e-9) for first, last in pairs)


class _EnoughError(Exception):
    """Ends a training that is timed."""


def training_speed(config: TrainConfig, vocabulary: int, device: str, least: float = 0.0) -> float:
    """Tokens a second that training reads, on tokens drawn at random.

    Args:
        config: of a method that learns from tokens alone.
        vocabulary: token types.
        device: auto, cpu or cuda.
        least: tokens a second below which the speed is of no use, so that a much lower one need not be exact.
    """
    import numpy as np

    from stages.examples.examples import Task
    from stages.examples.streams import Streams
    from stages.methods import METHODS
    from stages.methods.method import SideInputs
    from stages.models.devices import resolve_device, resolve_precision
    from stages.models.language_model import LanguageModel
    from stages.training.loop import Trainer
    from stages.training.ranks import make_fabric
    from stages.training.training_data import Run

    place = resolve_device(device)
    timed = config.model_copy(
        update={
            "model": config.model.sized(vocabulary, config.segment_length),
            "precision": resolve_precision(config.precision, place.type),
            "compile": False,  # which takes longer than what is timed
            "steps": WARM_UP + MOST,
        }
    )
    ids = np.random.default_rng(0).integers(vocabulary, size=FEWEST * config.batch_tokens)
    method = METHODS.load(timed.method)(timed.method_settings, SideInputs())
    model, tasks = LanguageModel(timed.model), [Task("train", Streams(ids, 0, timed.cutting))]
    stopwatch = _Stopwatch(least / (timed.batch_tokens * timed.accumulate))
    with TemporaryDirectory() as folder:
        trainer = Trainer(Run(make_fabric(place), timed, model, method, tasks, None, Path(folder), stopwatch, 3600.0))
        with suppress(_EnoughError):
            trainer.train()
    return stopwatch.updates_per_second() * trainer.update_tokens
