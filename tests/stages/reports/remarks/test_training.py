"""Whether a model was trained for long enough."""

import pytest

from stages.reports.remarks.table import MODEL, remarks_on

TRAINED = {
    **{"passes": 4.0, "steps": 30, "valid_loss": 4.0, "valid_step": 30, "still_falling": False},
    "last_validations": [{"step": 20, "loss": 4.1}, {"step": 30, "loss": 4.0}],
}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ["settled"]),
        ({"valid_step": 20}, ["lowest-before-end"]),
        ({"still_falling": True}, ["still-falling", "too-short"]),
        ({"still_falling": True, "passes": 8.0}, ["fell-with-rate"]),
        ({"last_validations": TRAINED["last_validations"][:1]}, ["validated-once"]),
        ({"last_validations": []}, ["never-validated"]),
        ({"passes": 0.5}, ["too-short", "settled"]),
        ({"split": "valid", "unknown_rate": 0.2}, ["unknown-rate", "settled"]),
    ],
)
def test_the_end_of_a_training_is_told(changed: dict, found: list[str]) -> None:
    codes = [remark.code for remark in remarks_on(MODEL, {**TRAINED, **changed})]
    assert sorted(codes) == sorted([*found, "passes"])


def test_a_model_of_labels_is_told_its_passes_alone() -> None:
    figures = {**TRAINED, "passes": 0.5, "last_validations": [], "head": {"name": "classifier"}}
    assert [remark.code for remark in remarks_on(MODEL, figures)] == ["passes"]


def test_a_model_from_elsewhere_has_no_such_remark() -> None:
    assert remarks_on(MODEL, {"parameters": 7}) == []


def test_losses_are_told_as_perplexities() -> None:
    (settled,) = (remark.text for remark in remarks_on(MODEL, TRAINED) if remark.code == "settled")
    assert {"(60.34", "54.6"} <= set(settled.split())
