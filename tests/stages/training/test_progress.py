"""How long a run will take is said once, and only where there is long to wait."""

import pytest

from stages.training.progress import Forecast, Progress


def lines(forecast, start, seconds_a_step, steps):
    """What is said after each of so many steps."""
    progress = start
    for _ in range(steps):
        progress.add(loss=1.0, seconds=seconds_a_step, documents=1)
        yield forecast.line(progress)


@pytest.mark.parametrize(("first", "left"), [(0, "3:10"), (100, "1:30")])
def test_the_time_left_is_said_once_after_the_first_updates(first, left):
    """Steps of half a second: ten of them are timed, and those before the start are not."""
    start = Progress(step=first, seconds=12345.0)
    found = list(lines(Forecast(start, steps=first + (390 if first == 0 else 190), update_tokens=1024), start, 0.5, 15))
    steps = first + (390 if first == 0 else 190)
    assert found == [None] * 9 + [f"{steps:,} steps: about {left} left, at 2,048 tokens a second"] + [None] * 5


def test_of_a_short_run_nothing_is_said():
    start = Progress()
    assert not any(lines(Forecast(start, steps=40, update_tokens=8), start, 0.5, 40))
