"""What is said where the best of what was tried is the last of it."""

import pytest

from stages.evaluation.results.edges import edge_warnings, spelled
from stages.retrieval.reading import parse_reading

COMMAND = "memlm evaluate model/1 --index index/2"
CACHE = {"sources": ["long"], "reader": "interpolate", "size": 100, "theta": 0.3, "lambda": 0.1, "tuned": ["theta"]}
KNN = {
    **{"sources": ["external"], "reader": "interpolate", "similarity": "l2", "key": "ffn-input", "k": 1024},
    **{"temperature": 12.5, "lambda": 0.25, "tuned": ["temperature", "lambda"]},
}


def curve(over, perplexities):
    points = [{over: 2**place, "perplexity": perplexity} for place, perplexity in enumerate(perplexities)]
    return {"row": "knn-lm", "over": over, "points": points}


def warnings(curves, memories=(KNN,), **most):
    rows = [{"row": "plain", "memories": []}, {"row": "knn-lm", "memories": [KNN]}]
    return list(edge_warnings({"memories": memories, "rows": rows, "curves": curves}, most, COMMAND))


def test_tuned_numbers_at_the_edge_come_with_the_command_that_looks_beyond_but_for_the_largest_there_can_be():
    (line,) = warnings([], [{**KNN, "interior": {"lambda": False, "temperature": True}}, CACHE])
    said, _, command = line.partition("a wider one: ")
    assert said == "The best lambda, 0.25, lies at the edge of its grid; "
    first, second = command.removeprefix(f"{COMMAND} --memory ").split(" --memory ")
    assert first.endswith("k=1024,temperature=tune,lambda=0.07692/0.1429/0.25/0.4/0.5714")
    assert second == "long:size=100,theta=0.3,lambda=0.1"
    assert not warnings([], [{**CACHE, "interior": {"size": False}}], size=100)
    assert "size=100/200/300" in warnings([], [{**CACHE, "interior": {"size": False}}], size=300)[0]


@pytest.mark.parametrize("memory", [KNN, CACHE, {**CACHE, "reader": "joint", "lambda": None, "alpha": -2.0}])
def test_what_is_spelled_can_be_typed(memory):
    reading = parse_reading(spelled(memory))
    assert reading.choices == [name for name in ("temperature", "theta", "lambda") if name in memory["tuned"]]
    assert not parse_reading(spelled(memory, frozen=True)).choices


def test_a_curve_that_still_falls_notably_at_its_end_is_told_once():
    (line,) = warnings([curve("k", [9, 8, 7]), curve("k", [9, 8, 6])], k=9)
    assert line.startswith(f"knn-lm still gained 12.5% by the last doubling of k, to 4; more: {COMMAND} --memory ")
    assert ",k=8,temperature=tune,lambda=tune" in line
    assert ",k=5," in warnings([curve("k", [9, 8, 7])], k=5)[0]
    assert not warnings([curve("k", [9, 8, 7])], k=4)
    assert not warnings([curve("k", [9, 6, 7])], k=5)
    assert not warnings([curve("k", [9, 8, 7.97])], k=5), "less than half a percent is not worth twice the time"
    assert not warnings([curve("k", [9, 7])], k=5)
    assert not warnings([curve("neighbors", [9, 8, 7])], k=5)
