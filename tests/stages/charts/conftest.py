import pytest

from stages.charts.drawing.figure import PIXELS  # before any test, so that it is the real one


@pytest.fixture(autouse=True)
def full_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.charts.drawing.figure.PIXELS", PIXELS)
