import math

import pytest

from stages.evaluation.figures.tuned import EDGES, learned_figures

GAINS = [0.02, 0.01, 0.03, 0.02, 0.02]
NETWORK = {"inner": [[1.0]]}


def learned(network=NETWORK, gains=GAINS, gate=None):
    return {"weight": 0.3, "tokens": 5000, "gains": gains, "network": network, "gate": gate}


def report(record, shards=(), searched=None):
    memory = {"tune_split": "valid", "lambda": 0.3} | ({} if searched is None else {"searched": searched})
    figures = learned_figures("knn-lm (learned λ)", "lambda", record, shards, [300.0, 200.0], 100)
    return {"learned_weight": figures, "memories": [memory]}


def shard(total, counts, by_gain=()):
    return {"weights": {"sum": total, "counts": counts + [0] * (len(EDGES) - 1 - len(counts))}, "by_gain": by_gain}


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
