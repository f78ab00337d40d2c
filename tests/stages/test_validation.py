"""Complaints about settings that a person can act on."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from stages.config import Settings
from stages.errors import UsageError
from stages.evaluation.config import EvaluateConfig
from stages.validation import validated


class Optimizer(Settings):
    lr: float = 0.1


class Train(Settings):
    steps: int = 1
    method: Literal["lm", "other"] = "lm"
    lists: Annotated[int, Field(gt=0)] | Literal["auto"] | None = "auto"
    optimizer: Optimizer = Optimizer()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"setps": 3}, "There is no setting 'setps'; did you mean 'steps'?"),
        (
            {"optimizer": {"lrs": 3}},
            "There is no setting 'optimizer.lrs'; did you mean 'optimizer.lr'?",
        ),
        ({"lrr": 3}, "There is no setting 'lrr'; did you mean 'optimizer.lr'?"),
        ({"zzzzzz": 3}, "There is no setting 'zzzzzz'; known: lists, method, optimizer, steps"),
        ({"lr": 3}, "There is no setting 'lr'; did you mean 'optimizer.lr'?"),
        (
            {"optimizer": {"lr": float("nan")}},
            "optimizer.lr: input should be a finite number (given: nan)",
        ),
        (
            {"lists": 0},
            "lists: input should be greater than 0 or Input should be 'auto' (given: 0)",
        ),
        ({"steps": "many"}, "steps: input should be a valid integer"),
        ({"method": "spalm"}, "method: input should be 'lm' or 'other' (given: 'spalm')"),
    ],
)
def test_complaints_name_the_setting_and_the_nearest_known(values: dict, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        validated(Train, values)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [10**25, 2**53])
@pytest.mark.parametrize("name", ["long_length", "context"])
def test_a_number_that_no_manifest_holds_is_refused(name: str, value: int) -> None:
    with pytest.raises(UsageError):
        validated(EvaluateConfig, {name: value})
    assert validated(EvaluateConfig, {name: 2**31}) is not None
