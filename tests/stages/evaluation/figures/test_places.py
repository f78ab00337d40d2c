"""What the bootstrap draws."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from stages.evaluation.figures.places import SHORTEST_GROUP, Places, grouped, units_of


def places(*lengths: int) -> Places:
    return Places(SimpleNamespace(), np.cumsum([0, *lengths]), None)


def test_lines_of_a_passage_are_drawn_in_groups() -> None:
    lines = places(*[100] * 20)
    units = units_of(lines, None, "line")
    assert (units.count, units.facts(3)) == (3, {"unit": "group", "block_tokens": 512, "units": 3})
    assert units.of(np.array([0, 599, 600, 1199, 1200, 1999])).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("lengths", [[512, 600, 512], [1, 511, 1, 600, 900, 2], [3], [10, 10]])
def test_groups_are_as_long_as_they_must_be_and_hold_all(lengths: list[int]) -> None:
    groups = grouped(np.cumsum([0, *lengths]))
    sizes = [sum(lengths[a:b]) for a, b in pairwise(groups)]
    assert sum(sizes) == sum(lengths)
    assert len(sizes) == 1 or min(sizes) >= SHORTEST_GROUP


def test_documents_of_their_own_are_drawn_one_by_one() -> None:
    short = places(*[100] * 20)
    assert units_of(short, None, None).count == units_of(short, None, "wikitext").count == 20
    assert units_of(places(600, 700, 800), None, "blank-line").facts(3)["unit"] == "document"
    assert units_of(short, 100, "line").facts(20) == {"unit": "block", "block_tokens": 100, "units": 20}
