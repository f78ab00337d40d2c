"""What is said where the best of what was tried is the last of it."""

from stages.evaluation.results.edges import edge_warnings


def curve(over, perplexities):
    points = [{over: 2**place, "perplexity": perplexity} for place, perplexity in enumerate(perplexities)]
    return {"row": "knn-lm", "over": over, "points": points}


def warnings(curves, tuned=(), **most):
    return list(edge_warnings({"curves": curves}, tuned, most))


def test_tuned_numbers_at_the_edge_are_named_but_for_the_largest_there_can_be():
    (told,) = warnings([], [("lambda", 0.9), ("size", 3729)], size=3729)
    assert told == "The best lambda, 0.9, lies at the edge of its grid; give a list that goes on beyond it."
    assert len(warnings([], [("size", 3728)], size=3729)) == 1


def test_a_curve_that_ends_at_its_best_is_told_once():
    (told,) = warnings([curve("k", [9, 8, 7]), curve("k", [9, 8, 6])], k=5)
    assert "best at k 4, the edge of what was tried" in told and "k=N" in told
    assert not warnings([curve("k", [9, 8, 7])], k=4)
    assert not warnings([curve("k", [9, 6, 7])], k=5)
    assert not warnings([curve("k", [9, 7])], k=5)
    assert not warnings([curve("neighbors", [9, 8, 7])], k=5)
    assert len(warnings([curve("k", [9, 8, 7])], [("k", 4)], k=5)) == 1
