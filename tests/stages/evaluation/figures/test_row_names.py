"""What first rows are called where two stand in one table."""

from stages.evaluation.figures.row_names import baseline_name

ROWS = [{"row": "plain"}, {"row": "knn-lm"}]
BASELINE = {"report": "report/7", "model": "model/7", "row": {"row": "plain"}}
REPORT = {"rows": ROWS, "read": {"model": "model/9"}, "baseline": BASELINE}


def test_a_baseline_of_the_same_model_is_named_with_its_report() -> None:
    assert baseline_name(REPORT) == "plain (model/7)"
    assert baseline_name({**REPORT, "read": {"model": "model/7"}}) == "plain (report/7)"
