"""What first rows are called where two stand in one table."""

from stages.evaluation.figures.row_names import baseline_name, short_name, with_model_named

ROWS = [{"row": "plain"}, {"row": "knn-lm"}]
BASELINE = {"report": "report/7", "model": "model/7", "row": {"row": "plain"}}
REPORT = {"rows": ROWS, "read": {"model": "model/9"}, "tables": {"rows": ROWS}, "baseline": BASELINE}


def test_beside_a_baseline_the_first_row_is_named_with_its_model_wherever_it_stands() -> None:
    found = with_model_named(REPORT)
    names = ["plain (model/9)", "knn-lm"]
    assert [row["row"] for row in found["rows"]] == [row["row"] for row in found["tables"]["rows"]] == names
    assert found["baseline"] is BASELINE
    assert [short_name(found, name) for name in names] == ["plain", "knn-lm"]
    alone = {**REPORT, "baseline": None}
    assert with_model_named(alone) is alone and short_name(alone, "plain") == "plain"


def test_a_baseline_of_the_same_model_is_named_with_its_report() -> None:
    assert baseline_name(REPORT) == "plain (model/7)"
    assert baseline_name({**REPORT, "read": {"model": "model/7"}}) == "plain (report/7)"
