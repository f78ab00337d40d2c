"""Duration of the timing: long enough for a right estimate, and no longer."""

from types import SimpleNamespace

import pytest

from stages.training.config import TrainConfig
from stages.training.presets import load_preset
from stages.training.speed import (
    ENOUGH_SECONDS,
    MAX_SECONDS,
    MAX_UPDATES,
    MIN_UPDATES,
    SLOW_SECONDS,
    WARM_UP,
    training_speed,
)
from stages.training.training_data import Run

ENDLESS = 10_000


@pytest.mark.parametrize(
    ("seconds", "updates", "expected", "least"),
    [
        ([0.05] * ENDLESS, WARM_UP + round(ENOUGH_SECONDS / 0.05), 0.05, 0.0),
        ([0.001] * ENDLESS, WARM_UP + MAX_UPDATES, 0.001, 0.0),
        ([1.5] * ENDLESS, WARM_UP + MIN_UPDATES, 1.5, 0.0),
        ([11.0] * ENDLESS, round(2 * MAX_SECONDS / 20), 11.0, 0.0),
        ([0.5] * 8 + [3.0] * 2 + [0.5] * ENDLESS, 10, 0.5, 0.0),
        ([0.5] * ENDLESS, WARM_UP + round(SLOW_SECONDS / 0.5), 0.5, 3.0 * 1024 / 0.5),
        ([0.5] * ENDLESS, WARM_UP + round(ENOUGH_SECONDS / 0.5), 0.5, 1.5 * 1024 / 0.5),
    ],
    ids=[
        "until there is enough",
        "a fast machine",
        "a slow one",
        "one that hardly moves",
        "one that is busy for a while",
        "one that is far too slow",
        "one that is hardly too slow",
    ],
)
def test_a_machine_is_timed_for_as_long_as_its_speed_takes_to_show(
    seconds: list[float],
    updates: int,
    expected: float,
    least: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each update takes the given seconds; the first takes longer."""
    clock = SimpleNamespace(now=0.0)
    ran: list[int] = []

    class Timed:
        order = SimpleNamespace(update_tokens=1024)

        def __init__(self, run: Run) -> None:
            self.config, self.reporter = run.config, run.listener

        def train(self) -> None:
            reporter = self.reporter
            for step in range(1, int(self.config.steps) + 1):
                clock.now += seconds[step - 1] + (0.3 if step == 1 else 0.0)
                ran.append(step)
                reporter.progress(step, int(self.config.steps), "steps")

    monkeypatch.setattr("stages.training.speed.Trainer", Timed)
    monkeypatch.setattr("stages.training.speed.time", SimpleNamespace(monotonic=lambda: clock.now))
    config = TrainConfig.model_validate({**load_preset("tiny"), "batch_tokens": 1024})
    assert training_speed(config, 64, "cpu", least) == pytest.approx(1024 / expected)
    assert len(ran) == pytest.approx(updates, abs=1)


def test_a_real_model_is_timed() -> None:
    config = TrainConfig.model_validate(
        {**load_preset("tiny"), "batch_tokens": 64, "segment_length": 16}
    )
    assert training_speed(config, 64, "cpu") > 0
