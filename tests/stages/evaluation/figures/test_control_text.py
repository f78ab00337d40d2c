"""Controls in words: a row that does not beat its control says so before anything else."""

import pytest

from stages.evaluation.figures.control_text import counted_line, worse_than_counting
from stages.evaluation.figures.remarks import on_change, remarks

TRAIN = {"corpus": "tokens/1", "split": "train", "tokens": 900}
OTHER = {"corpus": "tokens/2", "split": "train", "tokens": 500}


def control(perplexity: float | None, new: float | None = None, *, texts=(TRAIN,), past=None, **others) -> dict:
    figures = {"perplexity": perplexity, "perplexity_on_new_text": new}
    return {"texts": list(texts), "past": past, "weight": None, "tune_split": None, **figures, **others}


def report(*rows: tuple[str, float | None, dict | None], trigram: float = 671.0, **others: object) -> dict:
    """Rows of a model, each with its control."""
    made = [{"row": name, "perplexity": value, "control": held} for name, value, held in rows]
    counted = {"perplexity": trigram, "perplexity_on_new_text": trigram}
    return {"method": "lm", "split": "test", "read": {"model": "model/3"}, "rows": made, "trigram": counted, **others}


PLAIN = ("plain", 600.0, control(671.0))
KNN = ("knn-lm", 44.8, control(24.7, texts=(TRAIN, OTHER)))
BOTH = ("both", 37.0, control(35.2, past="stream", weight=0.25, tune_split="valid"))
CACHE = ("neural-cache", 30.0, control(35.2, past="document", weight=0.5))


def test_a_row_that_does_not_beat_counting_in_what_it_reads_says_so_first():
    first, second, *_ = remarks(report(PLAIN, KNN, CACHE))
    assert first == (
        "knn-lm (44.8, counting 24.7) does not beat a trigram of the same text: what it may gain is in the text "
        "that it reads, and counting finds more of it"
    )
    assert second.startswith("change: against plain")
    first = remarks(report(PLAIN, KNN, BOTH, CACHE))[0]
    assert first.startswith("knn-lm (44.8, counting 24.7) and both (37, counting 35.2) do not beat a trigram")
    assert first.endswith("what they may gain is in the text that they read, and counting finds more of it")
    assert remarks(report(PLAIN, CACHE))[0].startswith("change: against plain")


def test_a_model_that_loses_says_so_first_and_once():
    lines = list(on_change(report(("plain", 700.0, control(671.0)), KNN)))
    assert lines[0].startswith("plain is no better than the trigram (671): what a memory gains")
    assert lines[1].startswith("knn-lm (44.8, counting 24.7) does not beat")
    assert sum("plain (" in line for line in lines) == 0
    hardly = list(on_change(report(("plain", 660.0, control(671.0)), KNN)))
    assert [line.partition(" ")[0] for line in hardly[:2]] == ["knn-lm", "change:"]
    assert sum("plain is hardly better than the trigram" in line for line in hardly) == 1


def test_of_a_model_that_learned_to_be_read_with_memory_the_row_without_is_not_held_against_counting():
    lines = remarks(report(("plain", 900.0, control(671.0)), ("trime", 90.0, control(80.0)), method="trime"))
    assert lines[0].startswith("trime (90, counting 80) does not beat")


@pytest.mark.parametrize(
    ("value", "beaten"), [(44.8, (44.8, 24.7)), (24.7, (24.7, 24.7)), (24.6, None), (None, (None, 24.7))]
)
def test_a_row_is_worse_where_it_is_not_below(value, beaten):
    one = report(("knn-lm", value, control(24.7)))
    assert worse_than_counting(one, one["rows"][0]) == beaten


def test_where_text_was_read_before_the_new_one_decides():
    outside = {"repeated_share": 0.5, "rows": [{"row": "knn-lm", "perplexity": 50.0}], "texts": []}
    one = report(PLAIN, ("knn-lm", 20.0, control(9.0, 51.0)), outside_repeated_paragraphs=outside)
    assert worse_than_counting(one, one["rows"][1]) is None, "counting knows the other text by heart"
    one["rows"][1]["control"]["perplexity_on_new_text"] = 49.0
    assert worse_than_counting(one, one["rows"][1]) == (50.0, 49.0)
    assert "knn-lm (50, counting 49) does not beat a trigram of the same text on new text: " in " ".join(remarks(one))


def test_what_was_counted_is_said_where_rows_differ_by_it():
    (line,) = counted_line(report(PLAIN, KNN, BOTH, CACHE))
    assert line == (
        "counting: a trigram of all the text that a row may read: plain, train of tokens/1; "
        "knn-lm, train of tokens/1 and train of tokens/2; "
        "both, train of tokens/1 and what was scored before (weight 0.25, fitted on valid); "
        "neural-cache, train of tokens/1 and what was scored in the same document (weight 0.5)"
    )
    assert list(counted_line(report(PLAIN, ("knn-lm", 500.0, control(671.0))))) == []
    large = {**TRAIN, "tokens": 103_000_000}
    (line,) = counted_line(report(("plain", 20.0, control(None, texts=(large,))), trigram=9.0))
    assert line.endswith("plain, train of tokens/1 (not counted: 103,000,000 tokens are too many)")


def test_reports_of_before_have_no_controls():
    old = report(("plain", 700.0, None), ("knn-lm", 600.0, None))
    for row in old["rows"]:
        del row["control"]
    assert list(counted_line(old)) == []
    assert "does not beat a trigram of the same" not in " ".join(remarks(old))
