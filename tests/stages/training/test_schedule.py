import math

import pytest

from stages.training.config import ScheduleConfig
from stages.training.optimizer import learning_rate_factor


def curve(steps=100, **settings):
    schedule = ScheduleConfig(**settings)
    return [learning_rate_factor(step, steps, schedule) for step in range(1, steps + 1)]


@pytest.mark.parametrize("name", ["cosine", "inverse-sqrt", "constant"])
def test_warm_up_rises_in_equal_parts_to_the_highest_rate(name):
    factors = curve(name=name, warmup=10)
    assert factors[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert max(factors) == 1.0


def test_cosine_falls_through_the_middle_to_its_end():
    factors = curve(name="cosine", warmup=20, final=0.05)
    assert factors[59] == pytest.approx((1 + 0.05) / 2)
    assert factors[-1] == pytest.approx(0.05)
    assert factors[19:] == sorted(factors[19:], reverse=True)


def test_inverse_square_root_falls_with_the_root_of_the_step():
    factors = curve(name="inverse-sqrt", warmup=25)
    assert factors[99] == pytest.approx(math.sqrt(25 / 100))


def test_constant_stays_and_needs_no_warm_up():
    assert curve(name="constant") == [1.0] * 100
    assert curve(name="cosine")[0] < 1.0
