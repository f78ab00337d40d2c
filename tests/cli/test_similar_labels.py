"""Labels that are probably one are named."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm


@pytest.mark.parametrize(
    ("labels", "similar"),
    [(["Sports", "sports "], "'Sports', 'sports '"), (["Sports", "Sport"], None)],
)
def test_labels_that_differ_in_case_or_space_are_warned_of(
    memlm: Memlm, tmp_path: Path, labels: list[str], similar: str | None
) -> None:
    folder = tmp_path / "news"
    folder.mkdir()
    lines = [json.dumps({"text": f"text {label}", "label": label}) for label in labels * 3]
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    ended = memlm("tokenize", "--tasks", folder)
    assert ended.code == 0, ended.err
    warned = "differ in white space or letter case alone" in ended.err
    assert warned == (similar is not None)
    assert similar is None or similar in ended.err
