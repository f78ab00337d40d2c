import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DataError
from stages.text.files import PYDOCS, file_digest, pydoc_topics
from stages.text.records import TextFile, read_corpus, records
from tests.builders.limits import limit
from tests.builders.records import text_file
from tests.stages.text.helpers import examples


def read(path: Path | str) -> list[str]:
    return ["".join(record.blocks) for record in records(text_file(path))]


def test_a_json_line_is_a_record_and_blank_lines_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    content = '{"text": "one\\ntwo", "id": 7}\n\n  \n{"text": "drei \\u2028 \\ud83c\\udf0d"}'
    path.write_bytes(gzip.compress(content.encode()))
    assert read(path) == ["one\ntwo", "drei \u2028 🌍"]


@examples
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_every_text_comes_back(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("records") / "a.jsonl"
    lines = (json.dumps({"text": t}, ensure_ascii=False) for t in texts)
    path.write_text("\n".join(lines).replace("\0", "\\u0000"), encoding="utf-8")
    assert read(path) == [text.replace("\r\n", "\n") for text in texts]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "torn', "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ('["text"]', 'expected a JSON object with a field "text"'),
        ('{"body": "x"}', 'expected a JSON object with a field "text"'),
        ('{"text": 7}', 'expected a JSON object with a field "text" that is a string'),
        ('{"text": "a\\ud800"}', "half of a surrogate pair at character 1"),
    ],
)
def test_wrong_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: {message}"):
        read(path)


def test_records_are_called_by_their_title_name_or_id_else_by_their_line(tmp_path: Path) -> None:
    lines = [
        '{"text": "a", "id": 7, "title": " Emma "}',
        "",
        '{"text": "b", "id": 7}',
        '{"text": "c", "name": []}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("text")
    found = [
        record.name
        for name in ("a.jsonl", "b.txt")
        for record in records(text_file(tmp_path / name))
    ]
    assert found == ["Emma", "7", "a.jsonl:4", "b.txt"]
    assert "yield" in [record.name for record in records(text_file(PYDOCS))]


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_record_larger_than_allowed_is_refused_before_it_is_held(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl.gz"
    good, large = (
        json.dumps({"text": "ä" * 60}, ensure_ascii=False),
        json.dumps({"text": "a" * 10**6}),
    )
    path.write_bytes(gzip.compress(f"{good}\n{large}{ending}".encode()))
    limit(monkeypatch, raw_block=64)
    file = TextFile(str(path), "jsonl", file_digest(str(path)), largest_record=len(good.encode()))
    reading = records(file)
    assert "".join(next(reading).blocks) == "ä" * 60
    with pytest.raises(
        DataError,
        match=r"a\.jsonl\.gz, line 2: the record is larger than 132 B; .*--max-record-bytes",
    ):
        next(reading)


def test_a_record_is_held_a_few_times_at_most(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    size = 8_000_000
    path.write_text('{"text": "' + "\\n" * (size // 2) + '"}\n')
    file = text_file(path)
    tracemalloc.start()
    try:
        total = sum(len(block) for record in records(file) for block in record.blocks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == size // 2 and peak < 3 * size


def test_pydocs_are_a_record_a_topic() -> None:
    assert read(PYDOCS) == list(pydoc_topics().values())


def test_files_begin_documents_and_empty_ones_are_refused(tmp_path: Path) -> None:
    for name, content in {
        "a.txt": "one",
        "b.txt": "two\n",
        "empty.txt": "",
        "no.jsonl": '{"text": ""}\n',
    }.items():
        (tmp_path / name).write_text(content)
    files = [text_file(tmp_path / name) for name in ("a.txt", "b.txt")]
    assert [piece.marks & 1 for piece in read_corpus(files, "blank-line")] == [1, 1]
    for name in ("empty.txt", "no.jsonl"):
        with pytest.raises(DataError, match=f"{name} is empty; expected text"):
            list(read_corpus([*files, text_file(tmp_path / name)], "file"))
