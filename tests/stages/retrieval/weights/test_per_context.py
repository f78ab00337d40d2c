"""Weights of each context: what is kept of the tuning split, and what becomes of it."""

import json

import numpy as np
import pytest
import torch

from stages.memory.weight_network import WeightPositions
from stages.retrieval.grammar import parse_readings
from stages.retrieval.grids import Point, ReadingGrid
from stages.retrieval.rows import rows_of
from stages.retrieval.sources.source import SourceInputs
from stages.retrieval.weights import learned, per_context
from stages.retrieval.weights.grid import Choice
from stages.retrieval.weights.learned import CONTEXT, NEIGHBORS, ByNetwork
from stages.retrieval.weights.policy import Arrays
from tests.builders.limits import limit

INPUTS, N = len(CONTEXT) + len(NEIGHBORS), 600


@pytest.fixture(autouse=True)
def short_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, min_positions_of_fit=100)


def opened() -> ByNetwork:
    """A cache of eight positions for which λ = 0.3 was the best for all contexts."""
    row, *_ = rows_of(
        parse_readings(("long:size=8,theta=1,lambda=learned,similarity=dot,key=hidden",)),
        SMALL,
        False,
    )
    grid = ReadingGrid(row.grids([1.0])[0].reader, (1.0,), (8,), (0.3,), off=0.0)
    choice = Choice((Point(8, 1.0, 0.3),)).record([grid])
    return ByNetwork(row, [grid]).after("tune", choice)


SMALL = SourceInputs(8, False)


def positions(right: float, wrong: float, seed: int = 0) -> WeightPositions:
    """The model gives .1, the memory `right` where the first input is positive, else `wrong`."""
    inputs = torch.randn(N, INPUTS, generator=torch.Generator().manual_seed(seed)).double()
    memory = torch.where(inputs[:, 0] > 0, right, wrong).double().log()
    return WeightPositions(inputs, torch.full((N,), 0.1).double().log(), memory)


def kept(all_of_them: WeightPositions) -> list[Arrays]:
    """Two ranges, and one without a position."""
    cut = [all_of_them.select(rows) for rows in (torch.arange(250), torch.arange(250, N))]
    return [{}, *({name: part.float().numpy() for name, part in vars(one).items()} for one in cut)]


def after(policy: ByNetwork, given: WeightPositions) -> ByNetwork:
    return policy.after("weigh", json.loads(json.dumps(policy.choose("weigh", kept(given)))))


def test_what_gains_for_sure_is_read():
    policy = after(opened(), positions(0.9, 0.001))
    assert policy.model is not None and policy.points == (Point(8, 1.0, 0.3),)
    assert policy.gains is not None and len(policy.gains.thresholds) == len(learned.SHARES)
    assert policy.searches_where is None and policy.describe("valid")[-1]["policy"] == "learned"


def test_half_of_the_searches_are_worth_it_for_half_of_the_contexts(monkeypatch):
    monkeypatch.setattr("stages.retrieval.rows.MemoryRow.searched", 0.5)
    given = positions(0.9, 0.001)
    policy = after(opened(), given)
    assert policy.searches_where is not None and policy.searches_where.shares[-1] == 0.5
    opens = policy.searches_where.worth(given.inputs[:, : len(CONTEXT)].float())
    assert int(opens.sum()) == pytest.approx(N / 2, abs=2)
    assert (given.inputs[opens, 0] > 0).double().mean() > 0.9


@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_learned_in_one_thread(monkeypatch, threads):
    """Sums of many threads differ in their last digits, and workers have other numbers of them."""
    seen, learn = [], per_context.learn
    monkeypatch.setattr(
        per_context, "learn", lambda *given: seen.append(torch.get_num_threads()) or learn(*given)
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        after(opened(), positions(0.9, 0.001))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_no_memory_is_read_that_never_helps():
    policy = after(opened(), positions(0.0, 0.0))
    assert policy.choices["weigh"]["weight"] == 0.0 and policy.gains is None
    assert (
        policy.model is None
        and policy.searches_where is None
        and policy.points == (Point(8, 1.0, 0.0),)
    )


def test_before_the_pass_the_best_weight_for_all_is_read():
    policy = opened()
    assert policy.model is None and policy.points == (Point(8, 1.0, 0.3),)
    np.testing.assert_array_equal(policy.no_sums()["nll_by_cutoff"], [])
