"""The page of a comparison says what the text says, and is complete in itself."""

import re

import pytest

from stages.comparison.page import comparison_charts, page
from stages.comparison.sentences import group_tables, sentences, verdict
from stages.reports.remarks.table import COMPARISON, remarks_on
from tests.stages.comparison.found import FOUND, group
from tests.stages.pages.made import Outline

PER = [{"unit": "word", "count": 90, **group(90, -0.2, [-0.3, -0.1]), **{"perplexity_ratio": 0.8}}]
BY_TEXT = {
    **{name: FOUND[name] for name in ("a", "b", "reading", "split", "score")},
    **{
        "paired_on": "text",
        "tokens_a": 100,
        "tokens_b": 120,
        "unknown_rate_a": 0.1,
        "unknown_rate_b": 0.0,
    },
    "per": [one | {"perplexity_ratio_interval": [0.7, 0.9]} for one in PER],
    "bootstrap": FOUND["bootstrap"] | {"unit": "paragraph"},
}


@pytest.mark.parametrize("found", [FOUND, BY_TEXT], ids=["tokens", "text"])
def test_it_says_what_the_text_says_and_nothing_of_the_corpus_is_markup(found: dict) -> None:
    html = page(found)
    outline = Outline(html)
    said = "".join(outline.text)
    assert all(line in said for line in list(sentences(found))[2:])
    assert {found[name]["reference"] for name in ("a", "b")} <= set(
        re.findall(r"report/[\w-]+", said)
    )
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in outline.elements}
    assert not re.search(r"https?:|url\(|@import", html)
    assert "prefers-color-scheme: dark" in html


@pytest.mark.parametrize(
    ("counting", "told"),
    [
        (900.0, "; counting in what it reads (900)"),
        (113.0, ", not surely better than counting in what it reads (113)"),
        (1.5, ", no better than counting in what it reads (1.5)"),
        (None, ""),
    ],
)
def test_a_report_is_told_with_what_counting_has_of_the_text_that_it_reads(
    counting: float | None, told: str
) -> None:
    found = FOUND | {
        "a": {
            **FOUND["a"],
            "perplexity": 112.8,
            "against_counting": {"perplexity": 112.8, "counting": counting},
        }
    }
    assert next(iter(sentences(found))).endswith(f", perplexity 112.8{told}")
    assert f"perplexity{told}" in "".join(Outline(page(found)).text)


@pytest.mark.parametrize(("rate", "told"), [(0.121, True), (0.009, False)])
def test_unknown_tokens_are_told_where_they_are_many(rate: float, told: bool) -> None:
    for found, code in (
        (FOUND | {"unknown_rate": rate}, "unknown-rate"),
        (BY_TEXT | {"unknown_rate_a": rate, "unknown_rate_b": 0.0}, "unknown-rates"),
    ):
        texts = [remark.text for remark in remarks_on(COMPARISON, found) if remark.code == code]
        assert len(texts) == told and set(texts) <= set(sentences(found))
        assert all(
            f"{rate:.1%}" in text and text in "".join(Outline(page(found)).text) for text in texts
        )


def test_tokens_are_marked_by_who_wins_them_and_white_space_is_seen() -> None:
    html = page(FOUND)
    assert '<mark class="win" style="--strength: 100"> hall</mark>' in html
    assert '<mark class="lose" style="--strength: 65"> hall</mark>' in html
    assert ">⏎\n</mark>" in html


def test_charts_have_the_numbers_and_the_intervals() -> None:
    charts = {chart.name: chart for chart in comparison_charts(FOUND)}
    assert list(charts) == ["difference-by-frequency", "difference-by-position"]
    assert charts["difference-by-frequency"].plot.series[0].intervals == [(-0.3, -0.1), None]
    assert "0.3" in charts["difference-by-frequency"].csv
    assert list(comparison_charts(BY_TEXT)) == []


def test_groups_of_few_tokens_have_no_bar_and_stand_in_parentheses() -> None:
    few = group(2, -3.0, [-4.0, -2.0])
    found = FOUND | {"by_position": [FOUND["by_position"][0], {"from": 16, "to": 31, **few}]}
    chart = list(comparison_charts(found))[1]
    assert chart.plot.series[0].values == [0.1, None]
    assert chart.plot.series[0].intervals == [(-0.1, 0.3), None]
    assert "16-31 (2 tokens)" in chart.caption
    assert ["6 documents" in table.title for table in group_tables(FOUND)] == [True, True]
    _, by_position = group_tables(found)
    assert "100 tokens" in by_position.title
    assert by_position.lines[1] == [
        "16-31",
        "2",
        "(3.0000)",
        "(0.0000)",
        "(-3.0000 [-4.0000, -2.0000])",
        "(50.0%)",
    ]
    assert "(" not in next(comparison_charts(found)).caption
    nothing = found | {"by_position": [{"from": 0, "to": 15, **few}]}
    assert "100 tokens" in page(nothing)


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ([-0.15, -0.05], "knn-lm (B) is better than plain (A) on test"),
        ([0.05, 0.15], "knn-lm (B) is worse than plain (A) on test"),
        ([-0.15, 0.05], "plain (A) and knn-lm (B) on test differ by no more than chance may give"),
        (
            None,
            "plain (A) and knn-lm (B) on test: x 0.9000 [0.8600, 0.9500], nobody knows how surely",
        ),
    ],
)
def test_the_verdict_is_as_sure_as_the_interval(interval: list[float] | None, told: str) -> None:
    assert verdict(FOUND | {"interval": interval}) == told
