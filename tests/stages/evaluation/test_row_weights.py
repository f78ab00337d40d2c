"""What `tune` stands for beyond the configuration of a report."""

import hashlib
import json

from stages.artifacts.kinds import KINDS
from stages.evaluation import row_weights
from stages.evaluation.row_weights import sample_ranges
from stages.retrieval import grids
from stages.retrieval.sources import recent
from stages.retrieval.weights import grid


def test_a_change_of_what_tune_means_raises_the_format_of_reports():
    """Scales tried by default are no part of an id: other ones under the same format would be
    answered `cached`.
    """
    meaning = [
        grids.TEMPERATURE_FRACTIONS,
        recent.SHARPNESS,
        (row_weights.SAMPLE_RANGES, row_weights.SAMPLE_TOKENS),
        (grid.TRIED_TOGETHER, grid.MAX_ROUNDS),
    ]
    digest = hashlib.blake2b(json.dumps(meaning).encode(), digest_size=4).hexdigest()
    assert (KINDS["report"].format_version, digest) == (11, "c16dfad7")


def test_a_sample_is_spread_over_the_split_and_no_longer_than_it():
    assert sample_ranges(5) == [(0, 5)]
    ranges = sample_ranges(100_000)
    assert (ranges[0], ranges[-1]) == ((0, 128), (99_872, 100_000))
    assert all(stop - start == 128 for start, stop in ranges)
