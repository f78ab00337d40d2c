"""`memlm.new_model` and `memlm.score_ids`: refusals that name the argument."""

from typing import Any

import numpy as np
import pytest
import torch

from stages.encoding.scoring import score_ids
from stages.errors import UsageError
from stages.models.language_model import LanguageModel, new_model


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return new_model(10, 8, backbone="lstm", width=8, layers=1)


def test_ids_of_every_kind_are_scored_alike(model: LanguageModel) -> None:
    expected = score_ids(model, [1, 2, 3], 0, 8).log_p
    for ids in (np.array([1, 2, 3], np.uint16), torch.tensor([1, 2, 3])):
        assert torch.equal(score_ids(model, ids, 0, 8, "hidden").log_p, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 0, 8), "ids: there are no positions"),
        (([1, 20], 0, 8), "ids: row 1 holds 20, and ids are from 0 to 9"),
        (([1, -2], 0, 8), "ids: row 1 holds -2"),
        (([1.5, 2], 0, 8), "ids are whole numbers"),
        (([1, 2], 50, 8), "eos: row 0 holds 50"),
        (([1, 2], 0, 0), "context is a whole number, 1 or more, not 0"),
        (([1, 2], 0, 8, ["hiden"]), "keys: 'hiden' is none of this model; did you mean 'hidden'"),
    ],
)
def test_ids_are_checked(arguments: tuple, message: str, model: LanguageModel) -> None:
    with pytest.raises(UsageError, match=message):
        score_ids(model, *arguments)


@pytest.mark.parametrize(
    ("vocabulary", "length", "settings", "message"),
    [
        (0, 8, {}, "vocabulary is a whole number, 1 or more, not 0"),
        (10, 0, {}, "segment_length is a whole number"),
        (10, 8, {"backbone": "lstmm"}, "no backbone 'lstmm'; did you mean 'lstm'"),
        (10, 8, {"backbone": "lstm", "widht": 3}, "'model.widht'; did you mean 'model.width'"),
    ],
)
def test_settings_of_a_model_are_checked(
    vocabulary: Any, length: Any, settings: dict, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        new_model(vocabulary, length, **settings)
