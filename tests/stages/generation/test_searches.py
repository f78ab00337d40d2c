"""Readings that decide when to search, in texts of a session: learned weights, shares, pointers."""

import math

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.generation.generate import open_writer
from stages.generation.session import TextSession
from stages.inspection.reading import MemoryReader
from stages.inspection.request import Request
from stages.memory import weight_network
from stages.retrieval.neighbors import IndexSearch
from tests.stages.slow_evaluation import evaluated
from tests.stages.small_store import array
from tests.stages.small_text import built_index, text_model, text_tokens

LEARNED = "external:k=6,lambda=learned,temperature=2"
SEARCHES = {"learned": LEARNED, "half are searched": LEARNED + ",searched=0.5"}
FIXED = "external:k=6,lambda=0.4,temperature=2"


@pytest.fixture(scope="module")
def index(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    tokens = text_tokens(store, tmp_path_factory.mktemp("text"))
    return built_index(store, text_model(store, tokens))


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that learned from little text is read, whatever it gains."""
    monkeypatch.setattr(weight_network, "SHORTEST", 1)
    monkeypatch.setattr(weight_network, "SIGNIFICANT", -math.inf)


def opened(index: Artifact, **reading: object) -> MemoryReader:
    return open_writer(Request(source=index.reference, device="cpu", **reading), index.store)


@pytest.mark.parametrize("memory", SEARCHES.values(), ids=SEARCHES)
def test_a_learned_weight_is_that_of_the_evaluation(
    store: Store, index: Artifact, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Windows that texts are written in begin half a window apart.
    report = evaluated(store, index, memory, stride=4)
    wanted = array(report, "scores.zarr", "logp")
    plain = array(report, "scores.zarr", "logp_lm")
    ids = array(index.find("tokens"), "tokens.zarr", "test/ids").astype(int).tolist()
    searched = list[np.ndarray | None]()
    of_texts = IndexSearch.of_texts

    def counted(search: IndexSearch, keys: np.ndarray, rows: np.ndarray | None = None) -> object:
        searched.append(rows)
        return of_texts(search, keys, rows)

    monkeypatch.setattr(IndexSearch, "of_texts", counted)
    reader = opened(index, report=report.reference)
    session = TextSession(reader)
    (scores,) = session.score([session.add(ids)])
    np.testing.assert_allclose(scores.log_p, wanted, rtol=0, atol=2e-5)
    assert not np.allclose(wanted, plain, atol=1e-3)

    # Where nothing is searched for, the model alone is read.
    if memory != LEARNED:
        rows = np.concatenate([part for part in searched if part is not None])
        assert len(rows) == len(ids) and 0 < rows.sum() < len(rows)
        np.testing.assert_allclose(scores.log_p[~rows], plain[~rows], rtol=0, atol=2e-5)

    # Token by token, beside another text, it is the same.
    other = session.add(ids[:5])
    text = session.add(ids[:9])
    for place in range(9, 30):
        steps = session.step([other, text])
        assert float(steps[1, ids[place]]) == pytest.approx(wanted[place], abs=2e-5)
        session.put([other, text], [ids[place], ids[place]])


def test_pointers_search_for_every_token(index: Artifact) -> None:
    """A text that grows has no neighbours before it, whose pointers it could follow."""
    pointing = TextSession(opened(index, memory=(FIXED + ",pointers=2",)))
    searching = TextSession(opened(index, memory=(FIXED,)))
    prompts = [[2, 3, 4, 5], [7, 3]]
    texts = [pointing.add(ids) for ids in prompts]
    wanted = [searching.add(ids) for ids in prompts]
    for token in (4, 9, 2, 2, 5):
        torch.testing.assert_close(pointing.step(texts), searching.step(wanted))
        pointing.put(texts, [token, 3])
        searching.put(wanted, [token, 3])
