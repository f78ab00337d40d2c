"""What was measured is found again by the same work on the same machine, and by nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines import rates
from pipelines.calibration import Taken
from pipelines.rates import Machine, find, keep
from stages.artifacts.cost import Effort

KIN: Mapping[str, Any] = {"model": {"width": 8}, "segment_length": 16}


def effort(**kin: Any) -> Effort:
    return Effort(1_000, "tokens", KIN | kin, scale=5)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path) -> Path:
    keep(tmp_path, "train", "cpu", effort(), Taken(12.5, False))
    return tmp_path


def test_the_same_work_is_found_with_when_and_where(kept: Path) -> None:
    found = find(kept, "train", "cpu", effort())
    assert found is not None and (found.seconds, found.amount, found.scale) == (12.5, 1_000, 5)
    assert found.told == f"{found.measured}, for 1,000 tokens, on {Machine.of('cpu')}"


def test_other_work_and_other_machines_are_not(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(kept, "evaluate", "cpu", effort()) is None
    assert find(kept, "train", "Some GPU", effort()) is None
    assert find(kept, "train", "cpu", effort(segment_length=32)) is None
    monkeypatch.setattr(rates, "usable_cores", lambda: 77)
    assert find(kept, "train", "cpu", effort()) is None


def test_the_latest_counts(kept: Path) -> None:
    keep(kept, "train", "cpu", effort(), Taken(7.0, False))
    found = find(kept, "train", "cpu", effort())
    assert found is not None and found.seconds == 7.0
    assert len(list((kept / ".rates").iterdir())) == 1


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"seconds": 1}', "\0"])
def test_a_damaged_file_counts_for_nothing(kept: Path, content: str) -> None:
    (file,) = (kept / ".rates").iterdir()
    file.write_text(content)
    assert find(kept, "train", "cpu", effort()) is None


def test_a_store_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep(tmp_path / "file", "train", "cpu", effort(), Taken(1.0, False))
    assert find(tmp_path / "file", "train", "cpu", effort()) is None


def test_it_is_told_where_stand_ins_were_measured(kept: Path) -> None:
    keep(kept, "train", "cpu", effort(), Taken(7.0, True))
    found = find(kept, "train", "cpu", effort())
    assert found is not None and found.told.endswith(
        f"on {Machine.of('cpu')}, with stand-ins for what was not made yet"
    )
