"""Where learning diverges."""

from math import log

from stages.adaptation.course import Course

UNIFORM = log(1000)


def test_one_hard_segment_among_good_ones_is_no_divergence() -> None:
    course = Course()
    for loss in (4.0, 4.0, 30.0, 4.0):
        course.add(loss, 20)
        assert not course.diverges(UNIFORM)


def test_losses_that_stay_far_above_a_uniform_guess_are() -> None:
    course = Course()
    for _ in range(50):
        course.add(1.2 * UNIFORM, 20)
    assert not course.diverges(UNIFORM), "it is only bad"
    for _ in range(50):
        course.add(2 * UNIFORM, 20)
    assert course.diverges(UNIFORM)


def test_one_segment_that_is_as_long_decides_alone() -> None:
    course = Course()
    course.add(4.0, 512)
    course.add(2 * UNIFORM, 512)
    assert course.diverges(UNIFORM)


def test_no_number_is_divergence() -> None:
    course = Course()
    course.add(float("nan"), 20)
    assert course.diverges(UNIFORM)


def test_it_goes_on_from_its_state() -> None:
    course = Course()
    course.add(5.5, 20)
    course.begin_again(40)
    course.add(4.25, 20)
    assert Course.of(course.state()) == course
