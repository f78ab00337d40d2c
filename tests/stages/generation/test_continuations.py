"""Continuations of shared contexts, against each read as one passage."""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.generation.continuations import ContinuationScorer
from stages.inspection.reading import MemoryReader, continuation_scores, load_reader
from stages.inspection.request import Request, find
from stages.models.language_model import LanguageModel
from tests.stages.generation.imported import imported_index
from tests.stages.small_store import ModelConfig
from tests.stages.small_text import LSTM, built_index, text_model, text_tokens

pytest.importorskip("transformers")
READINGS = (
    "external:k=5,temperature=2,lambda=0.4",
    "long:size=7,theta=0.5,lambda=0.1",
    "exact-stream:matches=3,temperature=1,lambda=0.2",
)


def opened(store: Store, source: str) -> MemoryReader:
    request = Request(source=source, memory=READINGS, device="cpu")
    return load_reader(find(request, store, None), request)


@pytest.mark.parametrize("model", ["transformer", "lstm", "llama"])
def test_they_are_scored_as_one_passage_each(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model == "llama":
        index = imported_index(tmp_path, bos=True).index
    else:
        store = Store(tmp_path / "store")
        made = text_model(
            store, text_tokens(store, tmp_path), LSTM if model == "lstm" else ModelConfig().model
        )
        index = built_index(store, made)
    reader = opened(index.store, index.reference)
    scorer = ContinuationScorer(reader)
    contexts = [[2, 3, 4], [2, 3, 4], [2, 3, 4], [5], [3, 4, 5, 2, 3], [3, 4, 5, 2, 3]]
    continuations = [[5, 2, 3], [4], [2, 2], [3, 4], [2, 3, 4, 5, 2, 2, 3, 4, 5], [2, 3]]
    for context, continuation in zip(contexts, continuations, strict=True):
        found, is_best = scorer.score(context, continuation)
        wanted, best = continuation_scores(reader, context, continuation)
        np.testing.assert_allclose(found, wanted, atol=2e-5)
        assert is_best.tolist() == best.tolist()

    read, encode = list[int](), LanguageModel.encode
    monkeypatch.setattr(
        LanguageModel, "encode", lambda *given: read.append(given[1].shape[1]) or encode(*given)
    )
    scorer.score([2, 3], [4, 5])
    scorer.score([2, 3], [5])
    scorer.score([2, 3], [5, 4])
    # The context behind `<eos>` or `bos`, and one input for each continuation of two tokens.
    assert read == [3, 1, 1]
