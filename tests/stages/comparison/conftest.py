import pytest

from tests.builders.limits import limit


@pytest.fixture(autouse=True)
def lines_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts here are some lines, each a document; what is worked out by hand draws them one by one."""
    limit(monkeypatch, group_tokens=1, min_units=2)
