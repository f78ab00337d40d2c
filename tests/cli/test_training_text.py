"""What is said of how long a model was trained."""

from math import log

import pytest

from memlm_cli.training_text import training_line


def model(passes: float, falling: bool | None, *validations: tuple[int, float], best: int = 1000) -> dict:
    last = [{"step": step, "loss": log(perplexity)} for step, perplexity in validations]
    ran = {"steps": 1000, "valid_step": best, "valid_loss": log(79.5)}
    return {**ran, "passes": passes, "still_falling": falling, "last_validations": last}


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        (
            model(0.5, True, (500, 91.0), (1000, 79.6), best=900),
            "0.5 passes over the text; validation perplexity was still falling late in the run (91 at step 500; "
            "lowest 79.5 at step 900): train longer, --steps or --epochs of train, --minutes of try "
            "(a memory gains more on an undertrained model)",
        ),
        (
            model(1, False, (500, 80.0), (1000, 79.9)),
            "1 pass over the text; validation perplexity fell by less than 1% at the end (80 at step 500, 79.9 at step "
            "1,000), a sign that more steps would gain little",
        ),
        (
            model(9, False, (500, 80.0), (1000, 95.0), best=400),
            "9 passes over the text; validation perplexity was lowest 79.5 at step 400, whose weights are kept, and "
            "95 at the last step",
        ),
        (
            model(8, True, (500, 91.0), (1000, 79.6), best=900),
            "8 passes over the text; validation perplexity fell as the learning rate did (91 at step 500; lowest 79.5 "
            "at step 900): after so many passes no sign of more to come",
        ),
        (
            model(3, None, (1000, 80.0)),
            "3 passes over the text; validated once only, at step 1,000 (--set valid_every=N tells whether "
            "it still falls)",
        ),
        (model(3, None), "3 passes over the text; there is no validation split to tell when it is enough"),
    ],
)
def test_the_end_of_training_is_told_with_what_to_do(metrics: dict, told: str) -> None:
    assert training_line(metrics) == told


def test_of_models_that_do_not_say_nothing_is_said() -> None:
    assert training_line({"steps": 3}) is None
