"""What is said where the best of what was tried is the last of it."""

import pytest

from stages.evaluation.figures.edges import Tuned, TunedRow, edge_warnings, spelled
from stages.retrieval.reading import parse_reading

COMMAND = "memlm evaluate model/1 --index index/2"
CACHE = {"sources": ["long"], "reader": "interpolate", "size": 100, "theta": 0.3, "lambda": 0.1, "tuned": ["theta"]}
KNN = {
    **{"sources": ["external"], "reader": "interpolate", "similarity": "l2", "key": "ffn-input", "k": 1024},
    **{"temperature": 12.5, "lambda": 0.25, "tuned": ["temperature", "lambda"]},
}


AT_EDGE = {"lambda": False, "temperature": True}


def tuned_row(perplexity=6.0, curve=(), over="k", lowest=(False,), off=None):
    points = [(2**place, value) for place, value in enumerate(curve)]
    off = [False] * len(lowest) if off is None else off
    return TunedRow(perplexity, over, points, ["lambda"] * len(lowest), list(lowest), list(off))


def warned(tuned_rows, memories=(KNN,), plain=9.0, curves=(), trigram=None, **most):
    alone = [{"row": "knn-lm", "memories": [KNN]}, {"row": "neural-cache", "memories": [CACHE]}]
    rows = alone[:1] if len(memories) == 1 else [{"row": "both", "memories": memories}, *alone]
    rows = [{**row, "perplexity": 8.0} for row in ({"row": "plain", "memories": []}, *rows)]
    report = {"memories": memories, "rows": rows, "curves": curves, "trigram": trigram}
    tuned = None if tuned_rows is None else Tuned("valid", plain, tuned_rows)
    return list(edge_warnings({**report, "split": "test"}, tuned, most, COMMAND))


def test_tuned_numbers_at_the_edge_come_with_the_command_that_looks_beyond_but_for_the_largest_there_can_be():
    (line,) = warned([tuned_row()], [{**KNN, "interior": AT_EDGE}])
    said, _, command = line.partition("wider: ")
    assert said == "the best lambda (0.25) lies at the edge of its grid; "
    assert command.startswith(f"{COMMAND} --memory ")
    assert command.endswith("k=1024,temperature=tune,lambda=0.0769/0.143/0.25/0.4/0.571")
    assert not warned([tuned_row()], [{**CACHE, "interior": {"size": False}}], size=100)
    least = tuned_row()._replace(curve=[(100, 6.0), (200, 7.0)], over="size")
    assert "size=25/50/100" in warned([least], [{**CACHE, "interior": {"size": False}}], size=900)[0]
    assert "size=100/200/300" in warned([tuned_row()], [{**CACHE, "interior": {"size": False}}], size=300)[0]


def test_all_edges_are_one_sentence_and_one_command_and_memory_inside_its_grid_stays_as_it_is():
    memories = [{**KNN, "interior": {"temperature": False, "lambda": False}}, CACHE]
    both = [tuned_row(5.0, lowest=(False, False)), tuned_row(curve=[9, 8, 7]), tuned_row(curve=[9, 8, 7], over="size")]
    (line,) = warned(both, memories, k=9)
    assert line.startswith(
        "the best temperature (12.5) and lambda (0.25) of knn-lm before neural-cache lie at the edges of their grids; "
        "knn-lm still gained 12.5% on valid by the last doubling of k, to 4 (said until one gains less than 0.5%); "
        "wider, neural-cache after knn-lm as tuned before: "
    )
    first, second = line.partition(f"{COMMAND} --memory ")[2].split(" --memory ")
    assert first.endswith("k=8,temperature=3.12/6.25/12.5/25/50,lambda=0.0769/0.143/0.25/0.4/0.571")
    assert second == "long:size=100,theta=0.3,lambda=0.1"


def test_no_wider_grid_is_advised_for_memory_that_is_hardly_needed():
    memories = [{**KNN, "lambda": 0.02, "interior": {"lambda": False, "temperature": False}}]
    (line,) = warned([tuned_row(8.99, curve=[9, 8, 7], lowest=[True])], memories, k=9)
    assert line == (
        "knn-lm is hardly needed: of all lambda above 0 that were tried the lowest is best, 0.02, "
        "and it gains 0.1% on valid"
    )
    assert COMMAND in warned([tuned_row(8.0, lowest=[True])], memories)[0], "it gains"
    assert COMMAND in warned([tuned_row(8.99)], memories)[0], "the other edge"
    assert COMMAND in warned([tuned_row(None, lowest=[True])], memories)[0], "not known"
    chain = [KNN, {**CACHE, "interior": {"lambda": False}}]
    beside = [tuned_row(5.99, lowest=(False, True)), tuned_row(6.0), tuned_row(8.0)]
    (line,) = warned(beside, chain)
    assert line.startswith("neural-cache after knn-lm is hardly needed"), (
        "it is what it gains on top of the other that counts"
    )


def test_of_memory_that_is_switched_off_no_number_but_that_is_told_however_much_is_not_known():
    off = {**KNN, "lambda": 0.0, "temperature": None, "interior": {}}
    (line,) = warned([tuned_row(9.0, curve=[9, 8, 7], lowest=[True], off=[True])], [off], k=9)
    assert line == (
        "knn-lm does not help: the model alone is best on valid, so of all lambda that were tried 0 is taken, "
        "with which it changes nothing"
    )
    chain = [off, {**CACHE, "interior": {"theta": False}}]
    beside = [tuned_row(None, lowest=(True, False), off=(True, False)), tuned_row(9.0), tuned_row(8.0, over="size")]
    first, second = warned(beside, chain)
    assert first.startswith("knn-lm before neural-cache does not help: the others alone are best on valid, so ")
    said = (
        "the best theta (0.3) of neural-cache after knn-lm lies at the edge of its grid; wider, knn-lm before neural-"
    )
    assert second.startswith(said)
    assert "--memory external:similarity=l2,key=ffn-input,k=1024,lambda=0 --memory long" in second


def test_no_wider_grid_is_advised_for_memory_without_which_it_is_better():
    joint = {**CACHE, "reader": "joint", "alpha": 0.0, "lambda": None, "interior": {"size": False}}
    (line,) = warned([tuned_row(9.1, curve=[9.3, 9.2, 9.1], over="size")], [joint], size=900)
    assert line == "knn-lm does not help on valid (9.1 against 9)"
    assert COMMAND in warned([tuned_row(8.9)], [joint], size=900)[0], "it helps"
    lists = {**KNN, "interior": {"lambda": False}}
    assert warned([tuned_row(9.1, lowest=[True])], [lists]) == [line], "nor with the smallest weight that was tried"
    assert COMMAND in warned([tuned_row(9.1)], [lists])[0], "the other edge"
    beside = [tuned_row(6.1, lowest=(False, False)), tuned_row(6.0), tuned_row(8.0)]
    (line,) = warned(beside, [KNN, {**joint, "interior": {}}])
    assert line == "neural-cache after knn-lm does not help on valid (6.1 against 6)"


def test_no_more_neighbours_are_advised_where_a_trigram_is_better():
    def said(trigram, interior=None):
        counted = {"perplexity": trigram, "perplexity_on_new_text": trigram}
        memory = {**KNN, "interior": interior or {}}
        return warned([tuned_row(curve=[9, 8, 7])], [memory], trigram=counted, k=9999)

    assert ",k=8," in said(8.5)[0]
    assert not said(7.5) and not said(7.5, {"k": False})
    (line,) = said(7.5, {"k": False, "lambda": False})
    assert line.startswith("the best lambda (0.25) lies at the edge") and ",k=1024," in line


@pytest.mark.parametrize("memory", [KNN, CACHE, {**CACHE, "reader": "joint", "lambda": None, "alpha": -2.0}])
def test_what_is_spelled_can_be_typed(memory):
    reading = parse_reading(spelled(memory))
    assert reading.choices == [name for name in ("temperature", "theta", "lambda") if name in memory["tuned"]]
    assert not parse_reading(spelled(memory, frozen=True)).choices


def test_more_memory_is_advised_where_the_tuning_split_still_gained_notably():
    def said(curve, **most):
        return warned([tuned_row(curve=curve)], **most)

    (line,) = said([9, 8, 7], k=9)
    assert line.startswith("knn-lm still gained 12.5% on valid by the last doubling of k, to 4 (said until one gains ")
    assert f"less than 0.5%); wider: {COMMAND} " in line
    assert ",k=8,temperature=tune,lambda=tune" in line
    assert ",k=5," in said([9, 8, 7], k=5)[0]
    assert not said([9, 8, 7], k=4)
    assert not said([9, 6, 7], k=5)
    assert not said([9, 8, 7.97], k=5), "less than half a percent is not worth twice the time"
    assert not said([9, 7], k=5)
    assert not said([], k=5)
    assert not said([9, 8, 7], size=5)


def test_a_curve_of_the_scored_split_is_no_reason_for_advice():
    points = [{"k": 2**place, "perplexity": value} for place, value in enumerate([9, 8, 7])]
    curve = {"row": "knn-lm", "over": "k", "points": points}
    assert not warned([tuned_row()], curves=[curve], k=9)
    (line,) = warned(None, curves=[curve, curve], k=9)
    assert line.startswith("knn-lm still gained 12.5% on test by the last doubling of k, to 4: nothing was tuned")
    assert COMMAND not in line
    assert not warned(None, curves=[{**curve, "over": "neighbors"}], k=9)
