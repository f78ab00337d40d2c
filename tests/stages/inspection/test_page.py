"""The page of a passage: complete in itself, and safe whatever the corpus holds."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.inspection.inspect import Inspected
from stages.inspection.page import heaviest, page
from stages.numbers import probability
from stages.web import strength
from tests.builders.inspected import EVIL, inspected, token


class Tags(HTMLParser):
    """Which elements there are, and that each is closed."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("gate", [None, 0.25])
def test_it_is_complete_and_nothing_of_the_corpus_is_markup(gate):
    made = page(inspected(token(EVIL, 0.2, 0.4, 0.69, gate), token("b", 0.4, 0.2, -0.69, gate)))
    tags = Tags()
    tags.feed(made)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert not re.search(r"https?:|url\(|@import", made)
    assert "prefers-color-scheme: dark" in made
    assert made.count("&lt;script&gt;") > 5
    assert ("The gate" in made) is (gate is not None)


def test_numbers_of_probes_are_a_colouring_where_they_are_from_0_to_1():
    one = replace(
        token("fox", 0.2, 0.4, 0.69, 0.25), columns={"memory_weight": 0.25, "memory_age": 3000.0}
    )
    made = page(inspected(one))
    assert "The memory_weight" in made
    assert "The memory_age" not in made
    assert "3000.000" in made
    assert "0.1250 of attention" in made
    assert "3000 back" in made


def test_it_tells_who_won_and_where_contexts_stand():
    made = page(inspected(token("fox", 0.2, 0.4, 0.69)))
    assert 'class="win"' in made
    assert "0.4000" in made
    assert "0.2000" in made
    assert "+0.69" in made
    assert "train, document 3, token 7" in made
    assert "4 back" in made
    assert "<mark>fox</mark> after &amp; beyond" in made


def test_colour_is_full_from_a_factor_of_ten_on():
    assert [strength(gain) for gain in (0.0, 1.1513, -2.3026, 7.0)] == [0, 50, 100, 100]


def test_what_is_unlikely_is_told_by_its_size():
    assert [probability(value) for value in (0.72961, 0.0005, 3.002e-06, 0.0)] == [
        "0.7296",
        "0.0005",
        "3.0e-06",
        "0",
    ]
    memory = {
        "sources": ["long"],
        "reader": "interpolate",
        "similarity": "dot",
        "size": 2000,
        "theta": 0.0639912564,
    }
    found = Inspected(
        "model/0123456789ab",
        "test",
        5,
        [memory | {"numbers": "reported"}],
        [token("fox", 3e-6, 0.4, 1)],
    )
    assert "similarity dot, size 2,000, theta 0.06399" in page(found)
    assert '<span data-name="model">3.0e-06</span>' in page(found)


def test_memories_are_called_by_what_they_are_and_white_space_is_seen():
    found = inspected(token("fox", 0.2, 0.4, 0.69), token("\n", 0.2, 0.4, 0.69))
    made = page(found)
    assert "Who predicted tokens" in made and "model or datastore" in made
    assert '<span data-name="share of datastore">0.400</span>' in made
    assert "0.7500" in made
    assert '<span class="token">⏎</span>' in made
    assert "memory 1" not in made


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 8))
def test_windows_are_the_heaviest_that_are_left_each_time(
    values: list[int], most: int, length: int
) -> None:
    length = min(length, len(values))
    found = heaviest(np.array(values, float), most, length)
    free = list(range(len(values) - length + 1))
    for start, total in found:
        sums = [sum(values[one : one + length]) for one in free]
        assert total == pytest.approx(max(sums)) and total > 0
        assert start in free and sum(values[start : start + length]) == total
        free = [one for one in free if abs(one - start) >= length]
    left = max((sum(values[one : one + length]) for one in free), default=0)
    assert len(found) == most or left <= 0
