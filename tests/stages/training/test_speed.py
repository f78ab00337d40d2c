"""For how long a machine is timed, so that what is foretold is right and nobody waits."""

from types import SimpleNamespace

import pytest

from stages.reporting import Silent
from stages.training.config import TrainConfig
from stages.training.presets import load_preset
from stages.training.speed import ENOUGH, MOST, UPDATES, WARM_UP, training_speed


@pytest.mark.parametrize(
    ("seconds", "timed"),
    [(0.05, [UPDATES, round(ENOUGH / 0.05)]), (0.001, [UPDATES, MOST]), (9.0, [UPDATES])],
    ids=["until there is enough", "a fast machine", "a slow one"],
)
def test_a_fast_machine_is_timed_for_longer(seconds: float, timed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates of so many seconds each, but for the first of all, which is slow."""
    ran: list[int] = []

    class Timed:
        update_tokens = 1024

        def __init__(self, _fabric: object, config: TrainConfig, *_: object) -> None:
            self.steps = int(config.steps)

        def run(self) -> SimpleNamespace:
            ran.append(self.steps)
            return SimpleNamespace(step=self.steps, seconds=seconds * self.steps + (5.0 if len(ran) == 1 else 0.0))

    monkeypatch.setattr("stages.training.loop.Trainer", Timed)
    config = TrainConfig.model_validate(load_preset("tiny"))
    assert training_speed(config, 64, "cpu", Silent()) == pytest.approx(1024 / seconds)
    assert ran == [WARM_UP, *timed]
