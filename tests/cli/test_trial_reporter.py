"""`memlm try` tells where a model is not trained as fast as was planned, and what a small split needs."""

import pytest

from memlm_cli.trial import SOON, TrialReporter
from stages.tokenization.size_warnings import MORE_TEXT

AGAIN = "memlm try a.txt --minutes 10 --replan"


@pytest.mark.parametrize(
    ("name", "planned", "speed", "told"),
    [
        ("model", 2_000.0, 4_000.0, "planned at 2,000: there is time for more; " + AGAIN),
        ("model[seed=1]", 2_000.0, 1_000.0, "planned at 2,000: it takes longer than was planned; " + AGAIN),
        ("model", 2_000.0, 2_900.0, None),
        ("trime", 2_000.0, 900.0, None),
        ("model", None, 9_000.0, None),
    ],
)
def test_another_speed_than_was_planned_is_told_once_and_soon(
    name: str, planned: float | None, speed: float, told: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    with TrialReporter(name, planned, AGAIN, None, lambda: clock[0]) as reporter:
        for step in range(1, 9):
            clock[0] += SOON / 4
            reporter.progress(step, 100, "steps", tokens_per_second=speed)
            err = capfd.readouterr().err
            assert ("a second, planned" in err) == (told is not None and step == 5)
            assert step != 5 or told is None or told in err


def test_a_short_training_tells_it_at_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    with TrialReporter("model", 2_000.0, AGAIN, None, lambda: 0.0) as reporter:
        reporter.progress(1, 2, "steps", tokens_per_second=4_000.0)
        reporter.progress(2, 2, "steps", tokens_per_second=4_000.0)
    assert capfd.readouterr().err.count("trained at 4,000 tokens a second") == 1


@pytest.mark.parametrize(("larger", "said"), [("--minutes 9 would", "--minutes 9 would"), (None, MORE_TEXT)])
def test_what_makes_a_split_larger_is_what_does_here(
    larger: str | None, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with TrialReporter("tokens", None, AGAIN, larger) as reporter:
        reporter.warning(f"test has few tokens: {MORE_TEXT}")
    assert capfd.readouterr().err.rstrip().endswith(f"few tokens: {said}")
