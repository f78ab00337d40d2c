"""The token scores of a report, and reports without them."""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.evaluation.figures.token_scores import has_scores, open_scores
from tests.stages.comparison.made import corpus, report

NLL, NLL_LM = [1.0, 2.0, 0.5], [1.5, 2.0, 1.0]


def test_scores_are_those_of_the_reading_and_missing_ones_are_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    tokens = corpus(store, tmp_path, {"train": "a b\n", "test": "a b\n"})
    made = report(store, tokens, NLL, nll_lm=NLL_LM)
    assert has_scores(made)
    final, alone = open_scores(made, "final"), open_scores(made, "model")
    assert (final.row, alone.row) == ("neural-cache", "plain")
    np.testing.assert_array_equal(final.nll(0, 3), NLL)
    np.testing.assert_array_equal(alone.nll(1, 3), NLL_LM[1:])
    bare = report(store, tokens, NLL, save_token_scores=False)
    assert not has_scores(bare)
    with pytest.raises(
        ArtifactError, match=f"{bare.reference} has no token scores.*--save-token-scores"
    ):
        open_scores(bare, "final")
