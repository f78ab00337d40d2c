"""A baseline of another kind of model is told from one that differs in the memory alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stages.evaluation.baseline import baseline_row
from stages.evaluation.metrics_file import form
from stages.training.config import TrainConfig

PLAIN = {"model": {"backbone": "transformer", "layers": 2}, "optimizer": {"lr": 0.01}}


def model(*, steps: int = 7, **settings: Any) -> Any:
    """A trained model, as far as a baseline is compared with it."""
    config = TrainConfig.model_validate({**PLAIN, **settings}).stored()
    metrics = {"parameters": 5, "steps": steps, "tokens": 9}
    return SimpleNamespace(
        config=config,
        metrics=metrics,
        reference="model/1",
        path=Path("model/1"),
        record=None,
        matches=lambda _: False,
    )


def differences(own: Any, theirs: Any) -> list[str]:
    """Those of two models, of which the second is in the baseline."""
    metrics = {"method": "lm", "rows": [{"row": "plain"}]}
    report = SimpleNamespace(metrics=metrics, reference="report/1", input=lambda role: theirs)
    return baseline_row(report, own)["differs"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, []),
        ({"seed": 3}, []),
        ({"method": "trime"}, []),
        ({"steps": 9}, ["steps 7, not 9"]),
        ({"segment_length": 64}, ["segment length 128, not 64"]),
        ({"label_smoothing": 0.1}, ["label smoothing 0.0, not 0.1"]),
        ({"accumulate": 4}, ["accumulate 1, not 4"]),
        ({"optimizer": {"lr": 0.002}}, ["optimizer lr 0.01, not 0.002"]),
        ({"schedule": {"name": "constant"}}, ["schedule name cosine, not constant"]),
        ({"model": {"backbone": "transformer", "layers": 3}}, ["layers 2, not 3"]),
        ({"model": {"backbone": "lstm"}}, ["backbone transformer, not lstm"]),
    ],
)
def test_what_changes_a_perplexity_without_memory_is_named(
    settings: dict[str, Any], told: list[str]
) -> None:
    steps = settings.pop("steps", 7)
    assert differences(model(), model(steps=steps, **settings)) == told


def test_a_split_of_another_form_than_the_training_text_is_told_of_models_that_are_trained_here() -> (
    None
):
    wrapped, long = (
        {"characters": 700, "line_ends": n, "curly_quotes": 0, "straight_quotes": 0}
        for n in (10, 1)
    )
    tokens = SimpleNamespace(metrics={"splits": {"train": wrapped}})
    model = SimpleNamespace(config={"steps": 7}, input=lambda role: tokens)
    scored = {"splits": {"train": wrapped, "test": long, "valid": wrapped}}
    assert form(model, scored, "test") == ["lines of 70 characters in train, of 700 in test"]  # type: ignore[arg-type]
    assert form(model, scored, "valid") == []  # type: ignore[arg-type]
    (other,) = form(model, {"splits": {"train": long, "test": long}}, "test")  # type: ignore[arg-type]
    assert "in train" not in other  # the swapped text has a train of its own
    imported = SimpleNamespace(config={}, input=lambda role: tokens)
    assert form(imported, scored, "test") == []  # type: ignore[arg-type]
