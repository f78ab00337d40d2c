"""Who works on a draft."""

import json
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.lock import ATTEMPT, Attempt


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    noted = Attempt.of_this_process()
    noted.write(tmp_path)
    assert Attempt.read(tmp_path) == noted


def test_nothing_is_noted_of_a_draft_that_is_new(tmp_path: Path) -> None:
    assert Attempt.read(tmp_path) is None


@pytest.mark.parametrize("field", ["command", "began", "pid", "host"])
@pytest.mark.parametrize("other", [None, [], [[["2026"]]], {}, 1.5, "deep"])
def test_a_note_of_another_form_is_none(tmp_path: Path, field: str, other: Any) -> None:
    noted = Attempt.of_this_process().model_dump()
    if other == "deep":
        written = json.dumps(noted | {field: "@"}).replace('"@"', "[" * 100_000 + "]" * 100_000)
    else:
        written = json.dumps(noted | {field: other})
    (tmp_path / ATTEMPT).write_text(written)
    assert Attempt.read(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_other_content_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ATTEMPT).write_bytes(content)
    assert Attempt.read(tmp_path) is None
