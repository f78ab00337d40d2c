"""How long a run will take is said once, and only where there is long to wait."""

import pytest

from stages.training.progress import Forecast, Progress


def lines(forecast, start, seconds_a_step, steps):
    """What is said after each of so many steps."""
    progress = start
    for _ in range(steps):
        progress.count(seconds_a_step)
        yield forecast.line(progress)


@pytest.mark.parametrize(("first", "left"), [(0, "3:09"), (100, "1:29")])
def test_the_time_left_is_said_once_after_the_first_updates(first, left):
    """Steps of half a second: ten of them are timed, and not the first two, nor those before the start."""
    start = Progress(step=first, seconds=12345.0)
    found = list(lines(Forecast(start, steps=first + (390 if first == 0 else 190), update_tokens=1024), start, 0.5, 15))
    steps = first + (390 if first == 0 else 190)
    assert found == [None] * 11 + [f"{steps:,} steps: about {left} left, at 2,048 tokens a second"] + [None] * 3


def test_of_a_short_run_nothing_is_said():
    start = Progress()
    assert not any(lines(Forecast(start, steps=40, update_tokens=8), start, 0.5, 40))


def test_slow_first_updates_are_not_part_of_the_forecast():
    """The first two take 9 s, the others half a second: 385 of these are left after two and ten."""
    start, said = Progress(), []
    forecast = Forecast(start, steps=397, update_tokens=1024)
    for step in range(12):
        start.count(seconds=9.0 if step < 2 else 0.5)
        said.append(forecast.line(start))
    assert said[:-1] == [None] * 11 and "about 3:12 left, at 2,048 tokens a second" in said[-1]
