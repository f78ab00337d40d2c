"""Whether a run went on long enough."""

import json
from pathlib import Path

import pytest

from stages.metrics import undertrained
from stages.training.outputs import Validation, convergence, read_validations


@pytest.mark.parametrize(
    ("losses", "compared", "falling"),
    [
        ({}, [], None),
        ({1000: 5.0}, [1000], None),
        ({500: 5.0, 1000: 4.9}, [500, 1000], True),
        ({500: 5.0, 1000: 4.995}, [500, 1000], False),
        ({500: 5.0, 1000: 5.1}, [500, 1000], False),
        ({700: 5.0, 800: 4.9, 900: 4.85, 1000: 4.849}, [800, 1000], True),
        ({950: 5.0, 1000: 4.9}, [950, 1000], True),
        ({400: 4.5, 800: 5.0, 1000: 4.9}, [800, 1000], False),
        ({400: 4.895, 800: 5.0, 1000: 4.9}, [800, 1000], False),
        ({400: 4.9, 800: 5.0, 1000: 4.9}, [800, 1000], False),
        ({700: 5.0, 900: 4.85, 1000: 4.851}, [700, 1000], True),
        ({700: 5.0, 900: 4.85, 1000: 4.9}, [700, 1000], False),
    ],
)
def test_the_end_of_a_run_is_compared_with_what_came_before_it(losses, compared, falling) -> None:
    told = convergence(1.25, [Validation(*one) for one in losses.items()])
    assert [one["step"] for one in told["last_validations"]] == compared
    assert (told["passes"], told["still_falling"]) == (1.25, falling)


def test_validations_are_those_of_the_journal(tmp_path: Path) -> None:
    lines = [{"step": 1, "valid_loss": None}, {"step": 2, "valid_loss": 3.5}, {"step": 3}]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_validations(tmp_path / "lines") == [Validation(2, 3.5)]


@pytest.mark.parametrize(
    ("passes", "falling", "short"),
    [
        (0.9, False, True),
        (0.9, None, True),
        (1.0, False, False),
        (7.1, True, True),
        (7.9, True, False),
        (5, None, False),
    ],
)
def test_a_run_is_too_short_below_a_pass_or_while_it_falls_and_more_passes_are_worth_making(
    passes, falling, short
):
    assert undertrained({"passes": passes, "still_falling": falling}) == short
