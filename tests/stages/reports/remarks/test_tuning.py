"""Remarks on tuned numbers, where the best of what was tried is the last of it."""

import pytest

from stages.reports.remarks import Values
from stages.reports.remarks.table import MODEL, REPORT, remarks_on
from stages.reports.remarks.tuning import more_gains_on_scored, tuned_numbers
from tests.stages.reports.remarks.figures import METRICS, trigram

CACHE = {
    "sources": ["long"],
    "reader": "interpolate",
    "size": 100,
    "theta": 0.3,
    "lambda": 0.1,
    "tuned": ["theta"],
}
KNN = {
    **{
        "sources": ["external"],
        "reader": "interpolate",
        "similarity": "l2",
        "key": "ffn-input",
        "k": 1024,
    },
    **{"temperature": 12.5, "lambda": 0.25, "tuned": ["temperature", "lambda"]},
}
AT_EDGE = {"lambda": False, "temperature": True}


def tuned_row(perplexity=6.0, curve=(), over="k", lowest=(False,), off=None):
    points = [(2**place, value) for place, value in enumerate(curve)]
    off = [False] * len(lowest) if off is None else off
    weights = {"weights": ["lambda"] * len(lowest), "lowest": list(lowest), "off": list(off)}
    return {"perplexity": perplexity, "over": over, "curve": points, **weights}


def found(rows, memories=(KNN,), plain=9.0, counted=None, **largest) -> dict[str, Values]:
    """The remarks by their codes, where each is made once."""
    alone = [{"row": "knn-lm", "memories": [KNN]}, {"row": "neural-cache", "memories": [CACHE]}]
    named = alone[:1] if len(memories) == 1 else [{"row": "both", "memories": memories}, *alone]
    report = {
        **METRICS,
        **{"memories": memories, "trigram": None if counted is None else trigram(counted, counted)},
        "rows": [{**row, "perplexity": 8.0} for row in ({"row": "plain", "memories": []}, *named)],
        "tuning": {"split": "valid", "plain": plain, "rows": rows, "largest": largest},
    }
    made = list(tuned_numbers(report))
    assert len(dict(made)) == len(made)
    return dict(made)


@pytest.mark.parametrize(("split", "is_told"), [("test", True), ("valid", False), (None, False)])
def test_numbers_that_were_tuned_on_the_scored_text_are_no_result(split, is_told):
    rows = [{"row": "plain", "perplexity": 9.0, "memories": []}]
    rows.append({"row": "knn-lm", "perplexity": 8.0, "memories": [KNN]})
    tuning = {"split": split, "plain": 9.0, "rows": [], "largest": {}}
    report = {**METRICS, "rows": rows, "tuning": tuning, "curves": []}
    remarks = [one for one in remarks_on(REPORT, report) if one.code == "tuned-on-scored"]
    assert len(remarks) == is_told
    if is_told:
        assert remarks[0].text.startswith("temperature and lambda were tuned on test")
        assert remarks[0].short == "tuned on test"  # the title has it


def test_numbers_at_the_edge_are_named_with_their_values():
    made = found([tuned_row()], [{**KNN, "interior": AT_EDGE}])
    assert list(made) == ["edge-of-grid"] and made["edge-of-grid"]["best"] == "lambda (0.25)"


@pytest.mark.parametrize(("largest", "is_edge"), [(100, False), (300, True)])
def test_the_largest_there_can_be_is_no_edge(largest, is_edge):
    made = found([tuned_row(over="size")], [{**CACHE, "interior": {"size": False}}], size=largest)
    assert list(made) == (["edge-of-grid"] if is_edge else [])


def test_edges_of_several_memories_are_told_by_memory():
    memories = [{**KNN, "interior": {"temperature": False, "lambda": False}}, CACHE]
    both = [
        tuned_row(5.0, lowest=(False, False)),
        tuned_row(curve=[9, 8, 7]),
        tuned_row(curve=[9, 8, 7], over="size"),
    ]
    made = found(both, memories, k=9)
    assert list(made) == ["edge-of-grid", "more-memory-gains"]
    assert made["edge-of-grid"]["best"].split(" and ") == ["temperature (12.5)", "lambda (0.25)"]
    assert made["edge-of-grid"]["of"] == " of knn-lm before neural-cache"
    assert made["more-memory-gains"] == {
        "row": "knn-lm",
        "gain": "12.5%",
        "split": "valid",
        "over": "k",
        "amount": "4",
    }


def test_memory_that_is_hardly_needed_gets_no_wider_grid():
    memories = [{**KNN, "lambda": 0.02, "interior": {"lambda": False, "temperature": False}}]
    made = found([tuned_row(8.99, curve=[9, 8, 7], lowest=[True])], memories, k=9)
    assert list(made) == ["memory-hardly-needed"]
    assert (made["memory-hardly-needed"]["value"], made["memory-hardly-needed"]["gain"]) == (
        "0.02",
        "0.1%",
    )
    for row in (tuned_row(8.0, lowest=[True]), tuned_row(8.99), tuned_row(None, lowest=[True])):
        assert "edge-of-grid" in found(
            [row], memories
        )  # it gains, lies at the other edge, or is not known
    chain = [KNN, {**CACHE, "interior": {"lambda": False}}]
    made = found([tuned_row(5.99, lowest=(False, True)), tuned_row(6.0), tuned_row(8.0)], chain)
    assert (
        made["memory-hardly-needed"]["name"] == "neural-cache after knn-lm"
    )  # what it gains on top counts


def test_of_memory_that_is_switched_off_nothing_else_is_told():
    off = {**KNN, "lambda": 0.0, "temperature": None, "interior": {}}
    made = found([tuned_row(9.0, curve=[9, 8, 7], lowest=[True], off=[True])], [off], k=9)
    assert list(made) == ["memory-of-no-use"]
    assert (made["memory-of-no-use"]["others"], made["memory-of-no-use"]["value"]) == (
        "the model alone",
        "0",
    )
    chain = [off, {**CACHE, "interior": {"theta": False}}]
    rows = [
        tuned_row(None, lowest=(True, False), off=(True, False)),
        tuned_row(9.0),
        tuned_row(8.0, over="size"),
    ]
    made = found(rows, chain)
    assert made["memory-of-no-use"]["name"] == "knn-lm before neural-cache"
    assert made["memory-of-no-use"]["others"] == "the others alone"


def test_memory_without_which_it_is_better_gets_no_wider_grid():
    joint = {**CACHE, "reader": "joint", "alpha": 0.0, "lambda": None, "interior": {"size": False}}
    made = found([tuned_row(9.1, curve=[9.3, 9.2, 9.1], over="size")], [joint], size=900)
    assert list(made) == ["memory-costs"]
    assert (made["memory-costs"]["with"], made["memory-costs"]["without"]) == ("9.1", "9")
    assert "edge-of-grid" in found([tuned_row(8.9)], [joint], size=900), "it helps"
    lists = {**KNN, "interior": {"lambda": False}}
    assert list(found([tuned_row(9.1, lowest=[True])], [lists])) == [
        "memory-costs"
    ]  # nor with the smallest weight
    assert "edge-of-grid" in found([tuned_row(9.1)], [lists]), "the other edge"
    rows = [tuned_row(6.1, lowest=(False, False)), tuned_row(6.0), tuned_row(8.0)]
    assert (
        found(rows, [KNN, {**joint, "interior": {}}])["memory-costs"]["name"]
        == "neural-cache after knn-lm"
    )


def test_no_more_neighbours_are_advised_where_a_trigram_is_better():
    def made(counted, interior=None):
        return found(
            [tuned_row(curve=[9, 8, 7])],
            [{**KNN, "interior": interior or {}}],
            counted=counted,
            k=9999,
        )

    assert list(made(8.5)) == ["more-memory-gains"]
    assert not made(7.5) and not made(7.5, {"k": False})
    assert made(7.5, {"k": False, "lambda": False})["edge-of-grid"]["best"] == "lambda (0.25)"


@pytest.mark.parametrize(
    ("curve", "largest", "gains"),
    [
        ([9, 8, 7], {"k": 9}, True),
        ([9, 8, 7], {"k": 5}, True),
        ([9, 8, 7], {"k": 4}, False),
        ([9, 6, 7], {"k": 5}, False),
        ([9, 8, 7.97], {"k": 5}, False),
        ([9, 7], {"k": 5}, False),
        ([], {"k": 5}, False),
        ([9, 8, 7], {"size": 5}, False),
    ],
)
def test_more_memory_is_advised_where_the_tuning_split_still_gained_notably(curve, largest, gains):
    made = found([tuned_row(curve=curve)], **largest)
    assert list(made) == (["more-memory-gains"] if gains else [])


def test_a_curve_of_the_scored_split_is_no_reason_for_advice():
    points = [{"k": 2**place, "perplexity": value} for place, value in enumerate([9, 8, 7])]
    curve = {"row": "knn-lm", "over": "k", "points": points}

    def made(curve, rows=()):
        tuning = {"split": "valid" if rows else None, "rows": rows, "largest": {"k": 9}}
        report = {**METRICS, "curves": [curve, curve], "tuning": tuning}
        return list(more_gains_on_scored(report))

    ((code, values),) = made(curve)
    assert (
        code == "more-memory-gains-on-scored"
        and values["gain"] == "12.5%"
        and values["split"] == "test"
    )
    assert not made(curve, [tuned_row()])
    assert not made({**curve, "over": "neighbors"})


TRAINED = {
    **{"passes": 4.0, "steps": 30, "valid_loss": 4.0, "valid_step": 30, "still_falling": False},
    "last_validations": [{"step": 20, "loss": 4.1}, {"step": 30, "loss": 4.0}],
}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ["settled"]),
        ({"valid_step": 20}, ["lowest-before-end"]),
        ({"still_falling": True}, ["still-falling", "too-short"]),
        ({"still_falling": True, "passes": 8.0}, ["fell-with-rate"]),
        ({"last_validations": TRAINED["last_validations"][:1]}, ["validated-once"]),
        ({"last_validations": []}, ["never-validated"]),
        ({"passes": 0.5}, ["too-short", "settled"]),
        ({"split": "valid", "unknown_rate": 0.2}, ["unknown-rate", "settled"]),
    ],
)
def test_the_end_of_a_training_is_told(changed: dict, found: list[str]) -> None:
    codes = [remark.code for remark in remarks_on(MODEL, {**TRAINED, **changed})]
    assert sorted(codes) == sorted([*found, "passes"])


def test_a_model_of_labels_is_told_its_passes_alone() -> None:
    figures = {**TRAINED, "passes": 0.5, "last_validations": [], "head": {"name": "classifier"}}
    assert [remark.code for remark in remarks_on(MODEL, figures)] == ["passes"]


def test_a_model_from_elsewhere_has_no_such_remark() -> None:
    assert remarks_on(MODEL, {"parameters": 7}) == []


def test_losses_are_told_as_perplexities() -> None:
    (settled,) = (remark.text for remark in remarks_on(MODEL, TRAINED) if remark.code == "settled")
    assert {"(60.34", "54.6"} <= set(settled.split())
