"""The worked examples in docstrings are true."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.builders.limits import limit

PACKAGES = ("memlm_cli", "pipelines", "stages")
ROOT = Path(__file__).parents[1]
WORKED = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in PACKAGES
    for file in (ROOT / package).rglob("*.py")
    if ">>> " in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", WORKED)
def test_what_a_worked_example_shows_is_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, conditions_checked=100)  # as in a run, not as in other tests
    ended = doctest.testmod(import_module(name))
    assert ended.attempted > 0 and not ended.failed
