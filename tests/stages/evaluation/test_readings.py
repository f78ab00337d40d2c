import pytest

from stages.evaluation.readings import doubling_cutoffs, is_recomputed
from stages.memory.spec import parse_reading


@pytest.mark.parametrize(("k", "cutoffs"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_cutoffs_double_up_to_k_and_end_with_it(k, cutoffs):
    assert doubling_cutoffs(k) == cutoffs


@pytest.mark.parametrize(
    ("settings", "metric", "lossless", "recomputed"),
    [
        ("similarity=l2", "l2", True, False),
        ("similarity=l2", "l2", False, False),
        ("similarity=l2,exact=true", "l2", False, True),
        ("similarity=l2,exact=true", "l2", True, False),
        ("similarity=dot", "l2", True, True),
        ("similarity=l2", "ip", True, True),
        ("similarity=scaled-dot", "ip", True, False),
    ],
)
def test_scores_are_recomputed_only_where_what_is_found_will_not_do(settings, metric, lossless, recomputed):
    reading = parse_reading(f"external:lambda=0.1,{settings}")
    assert is_recomputed(reading, metric, lossless) == recomputed
