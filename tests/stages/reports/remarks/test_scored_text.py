"""Remarks on the text that was scored, and on the words of a report."""

import pytest

from stages.reports.remarks.scored_text import training_text
from stages.text.form import differences
from tests.stages.reports.remarks.figures import COUNTS, METRICS, ROWS, codes, text


@pytest.mark.parametrize(
    ("valid", "harder"),
    [(30.0, "easier"), (65.0, None), (79.0, None), (99.0, None), (110.0, "harder")],
)
def test_a_valid_split_that_is_harder_or_easier_is_remarked_on(
    valid: float, harder: str | None
) -> None:
    report = {**METRICS, "valid_perplexity": valid}
    assert ("uneven-valid" in codes(report)) == (harder is not None)
    words = [] if harder is None else text(report, "uneven-valid").split()
    assert harder is None or {f"{harder}:", f"{valid:g}", "80"} <= set(words)


@pytest.mark.parametrize(
    ("words", "made"), [(4000.0, True), (80.0, False), (None, False), (1e9, False)]
)
def test_a_word_perplexity_is_explained_where_one_is_shown(words: float | None, made: bool) -> None:
    rows = [{**ROWS[0], "nll": 4.4, "word_perplexity": words, "bits_per_character": 1.9}, *ROWS[1:]]
    assert ("word-perplexity" in codes({**METRICS, **COUNTS, "rows": rows})) == made


def test_words_of_memories_are_explained_once() -> None:
    cache = {"sources": ["long"], "reader": "interpolate", "size": 900, "theta": 0.3, "lambda": 0.1}
    neighbors = {
        "sources": ["external"],
        "reader": "interpolate",
        "k": 8,
        "temperature": 2.0,
        "lambda": 0.1,
    }
    rows = [
        {**ROWS[0], "memories": []},
        {**ROWS[1], "memories": [neighbors, cache]},
        {**ROWS[1], "memories": [cache]},
    ]
    report = {**METRICS, **COUNTS, "score": "all", "rows": rows}
    assert [part.partition(": ")[0] for part in text(report, "memory-words").split("; ")] == [
        *("external", "interpolate", "temperature τ", "lambda λ", "long", "theta θ")
    ]
    outside = {**report, "rows": [{**ROWS[1], "memories": [{**cache, "sources": ["elsewhere"]}]}]}
    assert "elsewhere" not in text(outside, "memory-words")
    assert "memory-words" not in codes({**report, "rows": ROWS})


WITHOUT = [
    {"row": "plain", "perplexity_without": 640.0, "share_of_gain": None},
    {"row": "knn-lm", "perplexity_without": 384.0, "share_of_gain": 0.61},
    {"row": "neural-cache", "perplexity_without": 656.0, "share_of_gain": None},
    {"row": "unigram-cache", "perplexity_without": None, "share_of_gain": None},
]


@pytest.mark.parametrize(("share", "made"), [(0.048, True), (0.01, False), (None, False)])
def test_many_ends_of_documents_are_remarked_on(share: float | None, made: bool) -> None:
    report = {**METRICS, "document_ends": share, "end_tokens": {"rate": 0.06, "rows": WITHOUT}}
    assert ("document-ends" in codes(report)) == made


def test_ends_of_documents_are_counted_with_their_line_ends() -> None:
    def said(rate: float) -> str:
        return text(
            {**METRICS, "document_ends": 0.053, "end_tokens": {"rate": rate, "rows": WITHOUT}},
            "document-ends",
        )

    assert "10.0% " in said(0.1) and "line break" in said(0.1) and "line break" not in said(0.053)


def test_many_unknown_tokens_are_told_with_what_they_gain() -> None:
    def report(rate: float) -> dict:
        return {**METRICS, "unknown_rate": rate, "unknown_tokens": {"rate": rate, "rows": WITHOUT}}

    assert "unknown-tokens" not in codes(report(0.009))
    rows = "plain 640; knn-lm 384 (-40.0%, 61% of its gain was theirs); neural-cache 656 (+2.5%); unigram-cache not known"
    assert rows in text(report(0.121), "unknown-tokens")


def test_a_datastore_of_the_scored_text_is_no_result_for_new_text() -> None:
    read = {"model": "model/3", "datastore": "datastore/4"}
    found = {
        exclude: text({**METRICS, "read": read, "exclude": exclude}, "scored-datastore-text")
        for exclude in ("self", "document", "window:9")
    }
    assert len(set(found.values())) == 3 and "9 tokens" in found["window:9"]
    assert all(said.startswith("datastore/4 ") for said in found.values())
    gate = {
        **METRICS,
        "read": {"model": "model/3", "gate_neighbors": "neighbors/5"},
        "exclude": "self",
    }
    assert text(gate, "scored-datastore-text").startswith("neighbors/5 ")
    assert codes(gate)[0] == "scored-datastore-text"


@pytest.mark.parametrize(
    ("changed", "made"),
    [
        ({}, True),
        ({"split": "valid"}, False),
        ({"read": {"model": "model/3", "tokens": "tokens/2"}}, False),
        ({"training": None}, False),
        ({"outside_repeated_paragraphs": None}, False),
    ],
)
def test_a_score_of_the_training_text_is_marked(changed: dict, made: bool) -> None:
    learned = {"corpus": "tokens/1", "split": "train", "read_by": ["model"], "repeated_share": 1.0}
    report = {
        **METRICS,
        **{"split": "train", "read": {"model": "model/3", "tokens": "tokens/1"}},
        **{"training": {"passes": 8.0, "still_falling": False}},
        "outside_repeated_paragraphs": {"repeated_share": 1.0, "texts": [learned], "rows": []},
    }
    assert (
        bool(list(training_text(report | changed)))
        == made
        == ("scored-training-text" in codes(report | changed))
    )
    uneven = "uneven-valid" in codes({**report, **changed, "valid_perplexity": 300.0})
    assert uneven is not made  # a model's own text differs from valid because it was learned


LEARNED = {"corpus": "tokens/1", "split": "train", "read_by": ["model"], "repeated_share": 0.15}
HELD = {"corpus": "tokens/2", "split": "test", "read_by": ["datastore"], "repeated_share": 0.1}


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ([], "in train."),
        ([LEARNED], "in train."),
        ([LEARNED, HELD], "in train (15.0%) or the datastore's text, test of tokens/2 (10.0%)."),
    ],
)
def test_the_texts_that_paragraphs_stand_in_are_named(texts: list, named: str) -> None:
    outside = {"repeated_share": 0.2, "rows": [], "texts": texts}
    said = text({**METRICS, "outside_repeated_paragraphs": outside}, "repeated-text")
    assert said.startswith("20.0% ") and said.endswith(named)


@pytest.mark.parametrize(("share", "shown"), [(0.0004, "0.04% "), (0.0123, "1.2% ")])
def test_a_small_share_of_repeated_text_is_not_zero(share: float, shown: str) -> None:
    outside = {"repeated_share": share, "rows": [], "texts": []}
    assert text({**METRICS, "outside_repeated_paragraphs": outside}, "repeated-text").startswith(
        shown
    )


def test_texts_that_differ_in_form_are_told() -> None:
    report = {**METRICS, "form": ["lines of 70 characters in train, of 400 in test"]}
    assert report["form"][0] in text(report, "other-form")
    assert "other-form" not in codes({**METRICS, "form": []})


def test_types_of_its_own_are_not_told_as_something_that_a_memory_gains_by() -> None:
    layout = {"characters": 700, "line_ends": 10, "curly_quotes": 0, "straight_quotes": 0}
    own = {**layout, "own_types": 0.3}
    (types,) = differences("test", layout, own)
    both = differences("test", layout, {**own, "characters": 4000})
    alone, more = (text({**METRICS, "form": form}, "other-form") for form in ([types], both))
    assert types in alone and "gain" not in alone
    assert types in more and "gain" in more
