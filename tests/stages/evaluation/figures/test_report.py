"""Figures of a report from the sums that shards left."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.evaluation.figures.breakdown import Frequencies
from stages.evaluation.figures.report import (
    EDGES,
    Totals,
    curves,
    frequency_buckets,
    learned_figures,
    outside_repeated_paragraphs,
    table,
    without,
)
from stages.metrics import Counts
from stages.reports.fields import baseline_name

NAMES = ["plain", "cache"]


def part(tokens: int, *nll: float | None) -> dict[str, Any]:
    return {"tokens": tokens, "nll": list(nll)}


def record(**other: Any) -> dict[str, Any]:
    return {
        "tokens": 10,
        "nll": [20.0, 10.0],
        "parts": {"outside": part(4, 8.0, 4.0), "unknown": part(2, 5.0, 1.0)},
        "nll_by_cutoff": [[11.0, 10.0]],
        "bucket_tokens": [6, 0, 0, 0, 4, 0],
        "bucket_nll": [[12.0, 0.0, 0.0, 0.0, 8.0, 0.0], [4.0, 0.0, 0.0, 0.0, 6.0, 0.0]],
        "matches": {"1": 2, "8": 5},
        "wrong": None,
        "seconds": [0.5, 1.0],
        **other,
    }


def rows(totals: Totals, vocabulary: int = 1000) -> list[dict[str, Any]]:
    return table(
        NAMES,
        [[], []],
        totals,
        Counts(totals.tokens, 0, 0, totals.tokens),
        totals.tokens,
        vocabulary,
    )


def test_records_are_added_up() -> None:
    totals = Totals.of([record(), record()])
    assert (totals.tokens, totals.nll, totals.nll_by_cutoff) == (20, [40.0, 20.0], [[22.0, 20.0]])
    assert (totals.matches, totals.parts["outside"]) == ({"1": 4, "8": 10}, part(8, 16.0, 8.0))
    assert totals.bucket_tokens == [12, 0, 0, 0, 8, 0]
    assert [row["nll"] for row in rows(totals)] == [2.0, 1.0]


def test_speeds_of_less_than_a_second_have_two_digits() -> None:
    long, short = (
        Totals.of([record(seconds=[3.0, 1.5])]),
        Totals.of([record(seconds=[0.3, 0.0123])]),
    )
    assert [row["tokens_per_second"] for row in rows(long) + rows(short)] == [3.3, 6.7, 33.0, 810.0]


def test_unknown_tokens_are_told_apart_with_their_share_of_the_gain() -> None:
    worse = record(nll=[20.0, 21.0])
    for records, share in (([record(), record()], 8 / 20), ([worse], None)):
        told = without(NAMES, Totals.of(records), "unknown")
        assert told and (told["tokens"], told["rate"]) == (2 * len(records), 0.2)
        assert [row["share_of_gain"] for row in told["rows"]] == [None, share]
        assert told["rows"][0]["perplexity_without"] == pytest.approx(math.exp(15 / 8))
    assert without(NAMES, Totals.of([record(parts={})]), "unknown") is None


def test_tokens_that_end_documents_are_told_apart() -> None:
    one = record(parts={"ends": part(4, 3.0, 1.0)})
    told = without(NAMES, Totals.of([one, one]), "ends")
    assert told and (told["tokens"], told["rate"]) == (8, 0.4)
    assert [row["perplexity_without"] for row in told["rows"]] == pytest.approx(
        [math.exp(17 / 6), math.exp(9 / 6)]
    )
    assert [row["share_of_gain"] for row in told["rows"]] == [None, 4 / 20]


def test_perplexity_by_frequency_has_the_buckets_that_hold_tokens() -> None:
    made = frequency_buckets(
        NAMES, Totals.of([record(), record()]), Frequencies(np.zeros(3, int), "train", "tokens/a")
    )
    assert made == {
        "counted_in": "train",
        "corpus": "tokens/a",
        "buckets": [
            {"more_than": 10_000, "at_most": None, "tokens": 12},
            {"more_than": 0, "at_most": 10, "tokens": 8},
        ],
        "rows": [
            {"row": "plain", "nll": [2.0, 2.0], "perplexity": [math.exp(2), math.exp(2)]},
            {
                "row": "cache",
                "nll": [pytest.approx(2 / 3), 1.5],
                "perplexity": [pytest.approx(math.exp(2 / 3)), math.exp(1.5)],
            },
        ],
    }


def test_frequencies_may_not_be_known() -> None:
    totals = Totals.of([record(bucket_tokens=None, bucket_nll=None)] * 2)
    assert frequency_buckets(NAMES, totals, None) is None


@pytest.mark.parametrize(
    ("nll", "vocabulary", "diverged"),
    [(10.0, 3, False), (10.0, 2, True), (1e5, 10**9, True), (None, 10**9, True)],
)
def test_what_is_no_number_or_worse_than_a_uniform_guess_is_said_to_diverge(
    nll: float | None, vocabulary: int, diverged: bool
) -> None:
    _, row = rows(Totals.of([record(nll=[0.5, nll])]), vocabulary)
    assert row["diverged"] is diverged
    assert (row["nll"] is None) == (nll is None)


def test_a_row_that_is_no_number_in_one_shard_leaves_the_others_whole() -> None:
    broken = record(
        nll=[20.0, None],
        parts={"outside": part(4, 8.0, None), "unknown": part(2, 5.0, 1.0)},
        nll_by_cutoff=[[None, 10.0]],
        bucket_nll=[[1.0] * 6, [None] + [1.0] * 5],
    )
    totals = Totals.of([record(), broken])
    plain, cache = rows(totals)
    assert plain["perplexity"] == pytest.approx(math.exp(2))
    assert {
        cache[name] for name in ("nll", "perplexity", "bits_per_character", "word_perplexity")
    } == {None}
    outside = outside_repeated_paragraphs(NAMES, totals)
    assert outside and [row["perplexity"] for row in outside["rows"]] == [math.exp(2), None]
    (curve,) = curves([("cache", "size", [{"size": 1}, {"size": 2}])], totals)
    assert [point["perplexity"] for point in curve["points"]] == [None, math.e]
    made = frequency_buckets(NAMES, totals, Frequencies(np.zeros(3, int), "train", "tokens/a"))
    assert made and made["rows"][1]["perplexity"] == [None, pytest.approx(math.exp(7 / 8))]


ROWS = [{"row": "plain"}, {"row": "knn-lm"}]
BASELINE = {"report": "report/7", "model": "model/7", "row": {"row": "plain"}}
REPORT = {"rows": ROWS, "read": {"model": "model/9"}, "baseline": BASELINE}


def test_a_baseline_of_the_same_model_is_named_with_its_report() -> None:
    assert baseline_name(REPORT) == "plain (model/7)"
    assert baseline_name({**REPORT, "read": {"model": "model/7"}}) == "plain (report/7)"


GAINS = [0.02, 0.01, 0.03, 0.02, 0.02]
NETWORK = {"inner": [[1.0]]}
LEARNED_ROW: Any = SimpleNamespace(
    name="knn-lm (learned λ)",
    sources=[SimpleNamespace(reading=SimpleNamespace(weight_name="lambda"))],
)
SCORED = Totals.of([record(nll=[300.0, 200.0], tokens=100)])


def learned(network=NETWORK, gains=GAINS, gate=None):
    return {"weight": 0.3, "tokens": 5000, "gains": gains, "network": network, "gate": gate}


def report(record, shards=(), searched=None):
    memory = {"tune_split": "valid", "lambda": 0.3} | (
        {} if searched is None else {"searched": searched}
    )
    figures = learned_figures(LEARNED_ROW, record, shards, SCORED)
    return {"learned_weight": figures, "memories": [memory]}


def shard(total, counts, by_gain=()):
    return {
        "weights": {"sum": total, "counts": counts + [0] * (len(EDGES) - 1 - len(counts))},
        "by_gain": by_gain,
    }


def test_shards_are_added_up():
    figures = report(learned(), [shard(1.0, [1, 3]), shard(2.0, [2])])["learned_weight"]
    assert figures["mean"] == pytest.approx(3 / 6)
    assert figures["histogram"]["tokens"][:3] == [3, 3, 0]
    assert figures["searches"] is None


@pytest.mark.parametrize(("searched", "ends"), [(1, [0.0, 0.5, 1.0]), (0.5, [0.0, 0.5])])
def test_points_go_from_no_search_to_those_that_were_made(searched, ends):
    gate = {"shares": [0.5], "thresholds": [0.1], "searched": searched}
    shards = [shard(1.0, [4], [[20, 150.0]]), shard(1.0, [4], [[40, 90.0]])]
    points = report(learned(gate=gate), shards)["learned_weight"]["searches"]
    assert [point["asked"] for point in points] == ends
    assert points[0] == {"asked": 0.0, "searched": 0, "perplexity": pytest.approx(math.exp(3))}
    assert points[1] == {"asked": 0.5, "searched": 0.6, "perplexity": pytest.approx(math.exp(2.4))}
    if searched == 1:
        assert points[2] == {"asked": 1.0, "searched": 1, "perplexity": pytest.approx(math.exp(2))}
