"""Which token each row is, against one list of (source, place) that is cut and lengthened row by
row.
"""

import numpy as np
import pytest

from stages.lineage.runs import KeptRows, OwnRows, Runs
from stages.search.config import forbidden_rows

OFFSETS = np.array([0, 3, 3, 8, 12, 13, 20])


def listed(runs: Runs) -> list[tuple[int, int]]:
    sources, places = runs.places_of(np.arange(runs.rows))
    return list(zip(sources.tolist(), places.tolist(), strict=True))


def changed(random: np.random.Generator, steps: int) -> tuple[Runs, list[tuple[int, int]]]:
    """Runs after some steps, and the list that they must be."""
    runs, want = Runs.whole(20), [(0, place) for place in range(20)]
    for _ in range(steps):
        gone = np.flatnonzero(random.random(len(want)) < 0.3)
        offsets = np.arange(len(want) + 1)
        runs = runs.keep(KeptRows.of_documents(offsets, gone))
        left = np.unique(runs.sources)
        runs = runs.renumbered(
            np.cumsum(np.isin(np.arange(int(left.max(initial=0)) + 1), left)) - 1
        )
        want = [one for row, one in enumerate(want) if row not in gone]
        renumbered = {
            source: number
            for number, source in enumerate(dict.fromkeys(source for source, _ in want))
        }
        want = [(renumbered[source], place) for source, place in want]
        added = int(random.integers(1, 9))
        runs = runs.followed_by(added, len(renumbered))
        want += [(len(renumbered), place) for place in range(added)]
    return runs, want


@pytest.mark.parametrize("seed", range(8))
def test_runs_are_what_the_rows_are_one_by_one(seed: int) -> None:
    runs, want = changed(np.random.default_rng(seed), steps=4)
    assert listed(runs) == want
    for source in {one for one, _ in want}:
        rows = [row for row, (one, _) in enumerate(want) if one == source]
        assert runs.block(source) == (rows[0], rows[-1] + 1)
        places = np.arange(0, 25)
        first = [
            next((row for row in rows if want[row][1] >= place), rows[-1] + 1) for place in places
        ]
        assert runs.rows_from(source, places).tolist() == first


@pytest.mark.parametrize("exclude", ["self", "window:2", "document"])
@pytest.mark.parametrize("seed", range(4))
def test_a_token_is_kept_from_the_rows_of_the_tokens_that_are_excluded(
    exclude: str, seed: int
) -> None:
    runs, want = changed(np.random.default_rng(seed), steps=2)
    ranges = OwnRows(runs, 0, OFFSETS).forbidden(exclude, 0, 20)
    places = forbidden_rows(exclude, 0, 20, OFFSETS)
    assert ranges is not None
    assert places is not None
    for token, (start, stop) in enumerate(ranges.tolist()):
        hidden = {
            row
            for row, (one, place) in enumerate(want)
            if one == 0 and places[token, 0] <= place < places[token, 1]
        }
        assert set(range(start, stop)) == hidden


def test_rows_of_a_built_datastore_are_those_of_the_split() -> None:
    own = OwnRows(Runs.whole(20), 0, OFFSETS)
    assert own.stored == (20, 0)
    assert own.forbidden("none", 0, 20) is None
    np.testing.assert_array_equal(
        own.forbidden("document", 0, 20), forbidden_rows("document", 0, 20, OFFSETS)
    )


def test_keys_that_are_stored_are_found_where_a_split_begins() -> None:
    runs = Runs(np.array([0, 5, 9]), np.array([0, 1]), np.array([2, 0]))
    assert OwnRows(runs, 0, OFFSETS).stored == (0, 0)
    assert OwnRows(runs, 1, OFFSETS).stored == (4, 5)
