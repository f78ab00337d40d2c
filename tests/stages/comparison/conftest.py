import pytest


@pytest.fixture(autouse=True)
def lines_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts here are some lines, each a document; what is worked out by hand draws them one by one."""
    monkeypatch.setattr("stages.evaluation.figures.places.SHORTEST_GROUP", 1)
    monkeypatch.setattr("stages.evaluation.figures.intervals.FEWEST_UNITS", 2)
