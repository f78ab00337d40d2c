"""A step with neighbours, recomputed in float64 from keys, values and a table of distances."""

import numpy as np
import pytest
import torch

from stages.lineage.runs import OwnRows, Runs
from stages.retrieval.grammar import parse_reading
from stages.retrieval.neighbors import Datastore, IndexSearch, IndexSteps
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.external import ExternalSource
from stages.retrieval.sources.source import SourceInputs
from stages.retrieval.weights.grid import Fixed
from stages.translation.decoder import Step
from stages.translation.step_memory import StepMemory

V, D, K, LAMBDA, TAU = 7, 4, 5, 0.6, 2.0
RANDOM = np.random.default_rng(0)
KEYS, VALUES = RANDOM.normal(size=(30, D)), RANDOM.integers(0, V, 30)
OFFSETS = np.array([0, 4, 9, 20, 30])
ONES, MERGED = np.ones(30, np.int64), np.random.default_rng(1).integers(1, 9, 30)
"""How many rows each stands for."""


class Exact:
    """Squared distances to all keys, by numpy."""

    metric = "l2"

    def search(self, queries, k, forbidden=None):
        distances = ((queries[:, None].astype(np.float64) - KEYS) ** 2).sum(-1)
        for row, span in enumerate(forbidden if forbidden is not None else []):
            distances[row, slice(*span)] = np.inf
        order = distances.argsort(1, kind="stable")[:, :k]
        found = np.take_along_axis(distances, order, 1)
        return np.where(np.isinf(found), -1, order), found.astype(np.float32)


def memory(
    spelled: str, own: OwnRows | None = None, counts: np.ndarray | None = None
) -> StepMemory:
    reading, merged = parse_reading(spelled), None if counts is None else torch.tensor([*counts, 0])
    values = torch.tensor([*VALUES, -1], dtype=torch.int32)
    source = ExternalSource(
        reading,
        SourceInputs(
            1, False, memories={ExternalSource: Datastore(None, values, "l2", True, merged)}
        ),
    )
    row = MemoryRow((source,))
    return StepMemory(
        Fixed(row, row.grids([1.0])),
        IndexSteps(IndexSearch(Exact(), K, {}, "self"), own),
        torch.float32,
    )


def step(rows: int) -> Step:
    logits = torch.from_numpy(RANDOM.normal(size=(rows, V)))
    key = torch.from_numpy(RANDOM.normal(size=(rows, D))).float()
    return Step(
        torch.zeros(rows, dtype=torch.long), logits.log_softmax(-1), logits.logsumexp(-1), key, None
    )


def expected(one: Step, hidden: list[slice] | None = None, counts: np.ndarray = ONES) -> np.ndarray:
    """(1 − λ) p + λ Σ c exp(−d / τ) / Z, a row and an entry at a time."""
    found = (1 - LAMBDA) * one.log_probs.exp().numpy()
    for row, query in enumerate(one.key.double().numpy()):
        distances = ((query - KEYS) ** 2).sum(-1)
        if hidden is not None:
            distances[hidden[row]] = np.inf
        nearest = np.argsort(distances)[:K]
        weights = counts[nearest] * np.exp(-distances[nearest] / TAU)
        for entry, weight in zip(nearest, weights / weights.sum(), strict=True):
            found[row, VALUES[entry]] += LAMBDA * weight
    return found


SPELLED = f"external:similarity=l2,k={K},temperature={TAU},lambda={LAMBDA}"


@pytest.mark.parametrize("counts", [ONES, MERGED])
def test_a_step_is_the_mean_of_both_distributions(counts: np.ndarray) -> None:
    one, read = step(9), memory(SPELLED, counts=None if counts is ONES else counts)
    found = read(one, torch.arange(9))
    np.testing.assert_allclose(found.exp(), expected(one, counts=counts), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.exp().sum(-1), 1, rtol=1e-5)
    assert read.searches == 9


def test_a_sentence_does_not_find_its_own_rows() -> None:
    own = OwnRows(Runs.whole(30), 0, OFFSETS)
    one, read = step(6), memory(SPELLED, own)
    read.begin([2, 0], [])
    sentences = torch.tensor([0, 0, 0, 1, 1, 1])
    found = read(one, sentences)
    np.testing.assert_allclose(
        found.exp(), expected(one, [slice(9, 20)] * 3 + [slice(0, 4)] * 3), rtol=1e-5, atol=1e-7
    )
    assert not np.allclose(found.exp(), expected(one))


@pytest.mark.parametrize("counts", [ONES, MERGED])
def test_evidence_names_the_neighbour_that_weighs_most_for_each_token(counts: np.ndarray) -> None:
    one, read = step(8), memory(SPELLED, counts=None if counts is ONES else counts)
    targets = torch.arange(8) % V
    found, wanted = (
        read.evidence(one, torch.zeros(8, dtype=torch.long), targets),
        expected(one, counts=counts),
    )
    np.testing.assert_allclose(found.log_p.exp(), wanted[np.arange(8), targets], rtol=1e-5)
    np.testing.assert_allclose(
        found.log_p_model, one.log_probs[torch.arange(8), targets], rtol=1e-5
    )
    for query, token, row, share in zip(
        one.key.numpy(), targets.tolist(), found.row.tolist(), found.share, strict=True
    ):
        distances = ((query - KEYS) ** 2).sum(-1)
        right = [entry for entry in np.argsort(distances)[:K] if VALUES[entry] == token]
        weights = counts[right] * np.exp(-distances[right] / TAU)
        assert row == (right[weights.argmax()] if right else -1)
        assert float(share) == pytest.approx(
            weights.max() / weights.sum() if right else 0, rel=1e-4
        )
    assert (found.row >= 0).any() and (found.row < 0).any()


def test_no_neighbour_leaves_the_model_as_it_was() -> None:
    one, read = step(3), memory(SPELLED, OwnRows(Runs.whole(30), 0, np.array([0, 30])))
    read.begin([0], [])
    found = read(one, torch.zeros(3, dtype=torch.long))
    np.testing.assert_allclose(found, one.log_probs, rtol=1e-5)
