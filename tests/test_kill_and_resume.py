"""Comparison of artifacts that two runs made, which every attack of the campaign ends with."""

import json
from pathlib import Path

import pytest

from stages.artifacts.make import make
from stages.artifacts.manifest import Manifest
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from tests.endurance.kill_and_resume import differences
from tests.stages.artifacts.toy import Squares, SquaresConfig


def made_at(folder: Path, moment: str) -> Path:
    """Squares in a store of their own, with a moment in their manifest and its checksum."""
    artifact = make(Squares(), SquaresConfig(), {}, Store(folder), Execution()).artifact
    manifest = Manifest.read(artifact.path).model_copy(update={"created": moment, "seconds": 1.5})
    (artifact.path / "manifest.json").write_text(manifest.sealed().dumps())
    return artifact.path


def test_equal_works_of_different_moments_do_not_differ(tmp_path: Path) -> None:
    first = made_at(tmp_path / "first", "2026-01-01T00:00:00+00:00")
    second = made_at(tmp_path / "second", "2026-01-02T00:00:00+00:00")

    checksums = {
        json.loads((path / "manifest.json").read_text())["checksum"] for path in (first, second)
    }
    assert len(checksums) == 2
    assert differences(first, second) == []


@pytest.mark.parametrize("field", ["digest", "config", "metrics"])
def test_a_field_of_the_work_differs(tmp_path: Path, field: str) -> None:
    first = made_at(tmp_path / "first", "2026-01-01T00:00:00+00:00")
    second = made_at(tmp_path / "second", "2026-01-01T00:00:00+00:00")

    file = second / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest[field] = "another" if field == "digest" else {"another": 1}
    file.write_text(json.dumps(manifest))
    assert differences(first, second) == ["manifest.json"]


def test_a_byte_of_an_array_differs(tmp_path: Path) -> None:
    first = made_at(tmp_path / "first", "2026-01-01T00:00:00+00:00")
    second = made_at(tmp_path / "second", "2026-01-01T00:00:00+00:00")

    file = next(path for path in sorted(second.rglob("c/*")) if path.is_file())
    file.write_bytes(b"another")
    assert differences(first, second) == [file.relative_to(second).as_posix()]
