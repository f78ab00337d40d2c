"""Four conditions on readings are checked while an evaluation runs, and who breaks one is named."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from stages.artifacts.store import Store
from stages.evaluation.figures import conditions
from stages.memory.readers.reader import Interpolate
from stages.retrieval.scored_range import RetrievedOf, ScoredRange
from stages.retrieval.sources.recent import RecentSource
from tests.builders.limits import limit
from tests.stages.slow_evaluation import evaluated, metrics
from tests.stages.small_store import VOCABULARY, remembering, small_model, small_tokens

CHECKED = 12
"""Positions that are checked here."""


@pytest.fixture(autouse=True)
def more_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, conditions_checked=CHECKED)


CACHE = "long:size=9,theta=0.5,lambda=0.2"
BACKBONES: dict[str, dict[str, Any]] = {
    "windows": {},
    "stream": {
        "model": {
            "backbone": "lstm",
            "vocab_size": VOCABULARY,
            "layers": 1,
            "width": 8,
            "dropout": 0.0,
        }
    },
    "segments": {"model": remembering("compressive")},
}


SEVERAL = ("local:reader=joint,theta=0.5", "exact-stream:lambda=0.3", CACHE)
TUNED = ("long:size=tune,theta=tune,lambda=tune",)
LEARNING = ("dynamic:rate=0.001,decay=0.1,segment=5", CACHE)


@pytest.mark.usefixtures("short_shards")
@pytest.mark.parametrize(
    ("backbone", "readings"),
    [
        ("windows", ()),
        ("windows", SEVERAL),
        ("stream", SEVERAL),
        ("segments", SEVERAL),
        ("windows", TUNED),
        ("stream", LEARNING),
    ],
)
def test_they_hold_for_all_readings_and_are_counted(
    store: Store, backbone: str, readings: tuple[str, ...]
) -> None:
    model = small_model(store, small_tokens(store), **BACKBONES[backbone])
    found = metrics(evaluated(store, model, *(readings or ("none",))))
    checked, names = found["conditions"], [row["row"] for row in found["rows"]]
    # Four in each of three shards, of which the last may have three tokens.
    assert checked["positions"] in (11, CHECKED) and checked["in_one_pass"]
    assert [row["row"] for row in checked["rows"]] == names
    assert all(row["broken"] == [] and row["future"] < 1e-5 for row in checked["rows"])
    assert "conditions-hold" in found["remarks"]


@pytest.fixture
def own_store(tmp_path: Any) -> Iterator[Store]:
    """Made with a source that cheats, its reports are kept from other tests."""
    yield Store(tmp_path / "store")


def test_a_memory_that_has_seen_the_token_is_named(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RecentSource.retrieve

    def peeking(self: RecentSource, scored_range: ScoredRange) -> RetrievedOf:
        """Each position reads the tokens after it, as if they were those before."""
        carried = scored_range.carried
        assert carried.tokens is None, "one shard"
        ahead = torch.roll(scored_range.lm.targets, -1)
        return original(self, _with_tokens(scored_range, ahead))

    monkeypatch.setattr(RecentSource, "retrieve", peeking)
    model = small_model(own_store, small_tokens(own_store))
    found = metrics(evaluated(own_store, model, CACHE))
    plain, cache = found["conditions"]["rows"]
    assert plain["broken"] == [] and {"future", "score"} <= {*cache["broken"]}
    assert "condition-broken" in found["remarks"] and "conditions-hold" not in found["remarks"]


def _with_tokens(scored_range: ScoredRange, tokens: torch.Tensor) -> ScoredRange:

    return replace(scored_range, lm=replace(scored_range.lm, targets=tokens))


def test_probabilities_that_add_up_to_more_are_named(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Interpolate._blend
    monkeypatch.setattr(
        Interpolate, "_blend", lambda self, *given: original(self, *given) + 0.01, raising=True
    )
    model = small_model(own_store, small_tokens(own_store))
    plain, cache = metrics(evaluated(own_store, model, CACHE))["conditions"]["rows"]
    assert plain["broken"] == [] and cache["broken"] == ["sum"]
    assert cache["sum"] == pytest.approx(0.01005, abs=1e-4)


def test_so_many_positions_are_checked_in_all() -> None:
    for parts in (1, 7, 300):
        counts = [conditions.checked_count(number, parts, 10**6) for number in range(parts)]
        assert sum(counts) == CHECKED


def test_of_a_short_split_no_more_is_read_again_than_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conditions, "POSITIONS", 100)
    counts = [conditions.checked_count(0, 1, tokens) for tokens in (300, 2_400, 4_800, 90_000)]
    assert counts == [12, 50, 100, 100]


def test_a_difference_that_is_no_number_breaks_a_condition() -> None:
    records = [{"positions": 2, "future": [0.0], "sum": [None], "score": [0.0005]}]
    found = conditions.condition_figures(records, ["plain"], "fp32", [(0, 4), (5, 9)])
    assert found["rows"][0]["broken"] == ["sum"] and not found["in_one_pass"]
