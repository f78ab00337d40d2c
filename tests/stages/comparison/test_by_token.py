"""Reports compared token by token: figures, groups, intervals, and what the tally adds up."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.comparison.by_token import (
    group_figures,
    most_changed,
    position_range,
    range_bounds,
    tally,
)
from stages.comparison.compare import compare, write_token_table
from stages.comparison.settings import FIELDS, ComparisonSettings
from stages.evaluation.figures.intervals import Bootstrap
from tests.builders.limits import limit
from tests.oracles import comparison as oracle
from tests.stages.comparison.made import corpus, report

TRAIN = "a " * 12 + "b\nc\n"
"""a stands 12 times, `<eos>` twice, b and c once, d never."""
TEST = "a b\nc a\nb d\n"
NLL_A = (1.0, 2.0, 0.5, 3.0, 1.0, 0.5, 2.0, 4.0, 0.5)
NLL_B = (0.5, 2.0, 1.0, 1.0, 1.5, 0.5, 2.5, 1.0, 0.5)
"""Differences: -0.5, 0, 0.5 in the first document; -2, 0.5, 0; 0.5, -3, 0. They sum to -4, of 9
tokens.
"""


@pytest.fixture(scope="module")
def tokens(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return corpus(store, tmp_path_factory.mktemp("text"), {"train": TRAIN, "test": TEST})


def compared(a: Artifact, b: Artifact, **settings: object) -> dict:
    found = compare(a, b, ComparisonSettings(**settings))  # type: ignore[arg-type]
    return json.loads(json.dumps(found, allow_nan=False))


def test_three_documents_by_hand(store: Store, tokens: Artifact) -> None:
    found = compared(report(store, tokens, NLL_A), report(store, tokens, NLL_B), most=2, around=2)
    assert found["paired_on"] == "tokens" and found["tokens"] == 9
    assert found.keys() <= FIELDS.keys()
    assert (found["nll_a"], found["nll_b"]) == pytest.approx((14.5 / 9, 10.5 / 9))
    assert found["difference"] == pytest.approx(-4 / 9)
    assert found["unknown_rate"] == pytest.approx(1 / 9)  # train has no d
    assert found["perplexity_ratio"] == pytest.approx(2.718281828 ** (-4 / 9))
    assert (found["won"], found["lost"], found["won_share"], found["lost_share"]) == (
        3,
        3,
        3 / 9,
        3 / 9,
    )
    # Documents sum to 0, -1.5 and -2.5: one resample of 27 is the first alone, one the last alone,
    # each 3.7%.
    assert found["interval"] == pytest.approx([-7.5 / 9, 0])
    assert found["perplexity_ratio_interval"] == pytest.approx([2.718281828 ** (-7.5 / 9), 1])
    assert found["bootstrap"] == {
        **{"samples": 10_000, "confidence": 0.95, "seed": 0},
        **{"unit": "document", "block_tokens": None, "units": 3, "units_won": 2},
    }


def test_lines_are_drawn_in_groups_that_are_long_enough(
    store: Store, tokens: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, group_tokens=3)
    assert (
        compared(report(store, tokens, NLL_A), report(store, tokens, NLL_B))["bootstrap"]["unit"]
        == "document"
    )
    limit(monkeypatch, group_tokens=4)
    found = compared(report(store, tokens, NLL_A), report(store, tokens, NLL_B))["bootstrap"]
    assert (found["unit"], found["units"], found["block_tokens"]) == ("group", 1, 4)


def test_buckets_and_positions_by_hand(store: Store, tokens: Artifact) -> None:
    found = compared(report(store, tokens, NLL_A), report(store, tokens, NLL_B))
    frequency = found["by_frequency"]
    assert (frequency["counted_in"], frequency["corpus"]) == ("train", tokens.reference)
    # a, twice: -0.5 + 0.5; b, <eos>, c: 0 + 0.5 - 2 + 0 + 0.5 + 0 in 6 tokens; d: -3.
    told = [
        (b["more_than"], b["at_most"], b["tokens"], b["difference"], b["won"])
        for b in frequency["buckets"]
    ]
    assert told == [
        (10, 100, 2, 0.0, 1),
        (0, 10, 6, pytest.approx(-1 / 6), 1),
        (None, 0, 1, -3.0, 1),
    ]
    assert frequency["buckets"][2]["interval"] is None
    (one,) = found["by_position"]
    assert (one["from"], one["to"], one["tokens"], one["difference"]) == (
        0,
        15,
        9,
        pytest.approx(-4 / 9),
    )


def test_positions_begin_anew_in_every_document(store: Store, tmp_path: Path) -> None:
    """The second document has 40 tokens and a line's end; B loses 1 nat on its tokens 16 to 31, and
    no other.
    """
    both = corpus(store, tmp_path, {"train": TRAIN, "test": "a\n" + "b " * 40 + "\n"})
    nll_b = [1.0] * 2 + [2.0 if 16 <= position < 32 else 1.0 for position in range(41)]
    found = compared(report(store, both, [1.0] * 43), report(store, both, nll_b))
    assert [(r["from"], r["to"], r["tokens"], r["difference"]) for r in found["by_position"]] == [
        (0, 15, 18, 0.0),
        (16, 31, 16, 1.0),
        (32, 63, 9, 0.0),
    ]


def test_tokens_won_and_lost_most_stand_in_their_context(store: Store, tokens: Artifact) -> None:
    gate = tuple(number / 8 for number in range(9))
    a, b = report(store, tokens, NLL_A), report(store, tokens, NLL_B, gate=gate)
    found = compared(a, b, most=2, around=2)
    first, second = found["most_won"]
    assert re.fullmatch(r"test-\d\.txt", first.pop("name"))
    assert first == {
        **{
            "token": 7,
            "document": 2,
            "position": 1,
            "log_p_a": -4.0,
            "log_p_b": -1.0,
            "difference": -3.0,
        },
        **{"gate_b": 0.875, "before": "b", "text": " <unk>", "after": "\n"},
    }
    assert (second["token"], second["difference"], second["before"], second["text"]) == (
        3,
        -2.0,
        "",
        "c",
    )
    assert [(one["token"], one["difference"]) for one in found["most_lost"]] == [(2, 0.5), (4, 0.5)]
    assert [one["text"] for one in found["most_lost"]] == ["<eos>", " a"]


def test_the_model_alone_is_compared_on_request(store: Store, tokens: Artifact) -> None:
    a = report(store, tokens, NLL_A, nll_lm=NLL_B, memory=("long:size=3,lambda=0.1",))
    b = report(store, tokens, NLL_B)
    assert compared(a, b)["difference"] == pytest.approx(-4 / 9)
    found = compared(a, b, reading="model")
    assert found["difference"] == 0 and found["reading"] == "model"
    assert (found["a"]["row"], found["b"]["row"]) == ("plain", "plain")
    assert compared(a, b)["a"]["row"] == "neural-cache"


def test_one_document_is_cut_into_blocks(store: Store, tmp_path: Path) -> None:
    """Blocks are as long as leaves 20 of them: of 9 tokens one, of 60 three."""
    for lines, length, units in ((3, 1, 9), (20, 3, 20)):
        text = "a b\n" * lines
        one = corpus(store, tmp_path, {"train": TRAIN, "test": text}, documents="file")
        found = compared(
            report(store, one, [1.0] * 3 * lines), report(store, one, [2.0, 1.0, 0.0] * lines)
        )
        assert (found["bootstrap"]["unit"], found["bootstrap"]["block_tokens"]) == ("block", length)
        assert found["bootstrap"]["units"] == units
    assert found["interval"] == [0.0, 0.0]


def test_blocks_are_drawn_on_request(store: Store, tokens: Artifact) -> None:
    a, b = report(store, tokens, NLL_A), report(store, tokens, NLL_B)
    found = compared(a, b, block_tokens=4)
    told = found["bootstrap"]
    assert (told["unit"], told["block_tokens"], told["units"], told["units_won"]) == (
        "block",
        4,
        3,
        2,
    )
    assert found["difference"] == pytest.approx(-4 / 9)
    # Sums of blocks: -2 of 4, -2 of 4, 0 of 1: one resample of 27 is the last alone.
    assert found["interval"] == pytest.approx([-0.5, 0])


def test_the_seed_decides_the_draws(store: Store, tokens: Artifact) -> None:
    a, b = report(store, tokens, NLL_A), report(store, tokens, NLL_B)
    intervals = [
        compared(a, b, samples=5, confidence=0.3, seed=seed)["interval"] for seed in (1, 1, 2)
    ]
    assert intervals[0] == intervals[1] != intervals[2]


def test_last_words_are_compared_where_they_stand(store: Store, tmp_path: Path) -> None:
    text = "a b\nc a\nb\n"
    tokens = corpus(store, tmp_path, {"train": TRAIN, "test": text})
    a, b = (
        report(store, tokens, nll, score="last-word") for nll in ((1.0, 2.0, 3.0), (2.0, 2.0, 1.0))
    )
    found = compared(a, b)
    assert (found["tokens"], found["score"], found["difference"]) == (
        3,
        "last-word",
        pytest.approx(-1 / 3),
    )
    (won,) = found["most_won"]
    assert (won["token"], won["document"], won["position"], won["text"]) == (6, 2, 0, "b")
    assert found["bootstrap"]["units"] == 3


def test_without_a_training_split_there_are_no_buckets(store: Store, tmp_path: Path) -> None:
    bare = corpus(store, tmp_path, {"test": TEST}, corpus(store, tmp_path, {"train": TRAIN}))
    assert compared(report(store, bare, NLL_A), report(store, bare, NLL_B))["by_frequency"] is None


def test_tokens_are_the_same_where_their_split_and_tokenizer_are(
    store: Store, tmp_path: Path, tokens: Artifact
) -> None:
    """Another artifact, with a split more."""
    more = corpus(store, tmp_path, {"train": TRAIN, "valid": "b\n", "test": TEST})
    assert more.reference != tokens.reference
    found = compared(report(store, tokens, NLL_A), report(store, more, NLL_B))
    assert found["paired_on"] == "tokens" and found["difference"] == pytest.approx(-4 / 9)


@pytest.mark.parametrize("block", [2, 100])
def test_the_table_has_a_line_a_token(
    store: Store, tokens: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    limit(monkeypatch, tokens_written=block)
    a, b = report(store, tokens, NLL_A), report(store, tokens, NLL_B)
    settings = ComparisonSettings(around=1)
    assert write_token_table(tmp_path / "table.csv", a, b, settings) == 9
    with (tmp_path / "table.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["token"]) for line in lines] == list(range(9))
    assert [-float(line["log_p_a"]) for line in lines] == list(NLL_A)
    assert [float(line["difference"]) for line in lines] == [
        b - a for a, b in zip(NLL_A, NLL_B, strict=True)
    ]
    assert [line["document"] for line in lines] == list("000111222")
    assert [line["text"].strip(" ") for line in lines] == [
        "a",
        "b",
        "<eos>",
        "c",
        "a",
        "<eos>",
        "b",
        "<unk>",
        "<eos>",
    ]
    assert [line["before"].strip(" ") for line in lines] == [
        "",
        "a",
        "b",
        "",
        "c",
        "a",
        "",
        "b",
        "<unk>",
    ]


TOKEN = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9))
"""Unit, group, and twice the NLL of A and B."""


@given(st.lists(TOKEN, min_size=1, max_size=40))
def test_groups_are_summed(tokens: list[tuple[int, int, int, int]]) -> None:
    units, groups, *nll = zip(*sorted(tokens), strict=True)
    nll_a, nll_b = (np.array(one) / 2 for one in nll)
    sums = tally(np.array(units), np.array(groups), nll_a, nll_b, (6, 5))
    want = oracle.mean_differences(units, groups, nll_a.tolist(), nll_b.tolist())
    for number, group in enumerate(group_figures(sums, Bootstrap(20, 0.9, 0))):
        assert (group is None) == (number not in want)
        if group is not None:
            count, difference, won, lost = want[number]
            assert (group["tokens"], group["won"], group["lost"]) == (count, won, lost)
            assert group["difference"] == pytest.approx(difference, abs=1e-12)
            own = [b for b, g in zip(nll_b, groups, strict=True) if g == number]
            assert group["nll_b"] == pytest.approx(np.mean(own))
    for unit in range(6):
        inside = [b - a for a, b, u in zip(nll_a, nll_b, units, strict=True) if u == unit]
        assert (sums[2] - sums[1])[unit].sum() == pytest.approx(sum(inside))
        assert sums[0, unit].sum() == len(inside)


def test_units_without_tokens_are_not_drawn() -> None:
    """Two documents of one token each between empty ones: the mean of a resample is -1, 0 or 1."""
    sums = tally(
        np.array([20, 40]),
        np.zeros(2, np.int64),
        np.array([1.0, 1.0]),
        np.array([0.0, 2.0]),
        (50, 1),
    )
    (group,) = group_figures(sums, Bootstrap(1000, 0.95, 0))
    assert group is not None and group["interval"] == [-1.0, 1.0]


@given(st.integers(0, 10**9))
def test_a_position_lies_in_its_range(position: int) -> None:
    number = int(position_range(np.array([position]))[0])
    start, stop = range_bounds(number)
    assert start <= position < stop


def test_ranges_double() -> None:
    assert [range_bounds(number) for number in range(4)] == [(0, 16), (16, 32), (32, 64), (64, 128)]
    assert position_range(np.array([0, 15, 16, 31, 32, 63, 64, 1 << 40])).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        37,
    ]


@given(st.lists(st.tuples(st.integers(-3, 6), st.integers(0, 3)), max_size=60), st.integers(0, 5))
def test_the_largest_gains_are_found_the_most_probable_of_equals_first(
    values: list[tuple[int, int]], most: int
) -> None:
    gains = [gain / 100 for gain, _ in values]
    nll = [float(nats) for _, nats in values]
    above = [row for row, gain in enumerate(gains) if gain > 0]
    assert (
        most_changed(np.array(gains, float), np.array(nll, float), most).tolist()
        == sorted(above, key=lambda row: (-gains[row], nll[row], row))[:most]
    )


def test_gains_that_differ_by_rounding_alone_are_equal() -> None:
    """A memory of weight 1/4 that lacks a token takes 0.2877 nats from it, whatever the token."""
    nll = np.array([7.0, 0.5, 3.0, 0.5])
    lost = np.array([0.28768209, 0.28768207, 0.28768210, 0.28768208])
    assert most_changed(lost, nll, 4).tolist() == [1, 3, 2, 0]


def test_a_token_without_a_difference_is_not_listed() -> None:
    gains = np.array([0.0, 1e-7, 0.0049, 0.0051, -1.0])
    assert most_changed(gains, np.zeros(5), 5).tolist() == [3]
