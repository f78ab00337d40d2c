import gzip
import json
from pathlib import Path

import pytest

from stages.text.survey import bpe_vocabulary, holds_unknown, text_bytes
from tests.stages.text.test_records import text_file


@pytest.mark.parametrize(
    ("text_bytes", "types"),
    [
        (0, 512),
        (50_000, 512),
        (255_000, 1024),
        (1_115_394, 2048),
        (10_797_148, 8192),
        (100_000_000, 16_384),
        (540_000_000, 32_768),
        (10**12, 32_768),
    ],
)
def test_a_vocabulary_grows_with_the_root_of_the_text(text_bytes: int, types: int) -> None:
    assert bpe_vocabulary(text_bytes) == types


def test_the_text_is_measured_whatever_it_is_packed_in(tmp_path: Path) -> None:
    text = "größer\n世界\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "title": "left out"}))
    files = [text_file(tmp_path / name) for name in ("a.txt", "a.txt.gz", "a.jsonl")]
    assert text_bytes(files) == 3 * len(text.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("the <unk> of\n", True), ("<unk>", True), ("a<unk> <unk>b\n", False), ("unk <UNK>\n", False)],
)
def test_unknown_words_that_the_text_itself_has(text: str, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "before\n" * 9}) + "\n" + json.dumps({"text": text}))
    assert holds_unknown([text_file(path)]) == expected
