"""A part of many records is whole ones, spread over all of them, each with its names."""

import json
from itertools import pairwise
from pathlib import Path

from stages.text.parts import record_lines, record_sizes, spread_records
from stages.text.records import TextFile
from tests.stages.text.test_survey import text_file


def test_records_are_spread_over_all_of_the_text_up_to_its_end() -> None:
    chosen = spread_records([15_000] * 60, 50_000)
    assert len(chosen) == 3 and max(chosen) - min(chosen) >= 30
    many = sorted(spread_records([100] * 1_000, 25_000))
    gaps = [after - before for before, after in pairwise(many)]
    assert 235 <= len(many) <= 250 and min(many) < 8 and max(many) > 990 and max(gaps) <= 8


def test_records_that_are_too_large_to_be_taken_whole_are_not_taken() -> None:
    assert spread_records([900_000], 50_000) == spread_records([60_000] * 10, 50_000) == set()
    assert spread_records([30_000, 900_000], 50_000) == set(), "one record is no more than a beginning"
    assert spread_records([900_000, *[10_000] * 9], 50_000) <= set(range(1, 10))


def test_lines_hold_the_names_of_records_and_of_files(tmp_path: Path) -> None:
    records = [{"id": 7, "title": "one", "text": "a\nb é", "other": 1}, {"text": "c"}]
    table = text_file(tmp_path, "a.jsonl", "\n".join(map(json.dumps, records)))
    files: list[TextFile] = [table, text_file(tmp_path, "b.txt", "dd")]
    assert record_sizes(files) == [6, 1, 2]
    lines = [json.loads(line) for line in record_lines(files, {0, 1, 2})]
    assert lines == [
        {"id": 7, "title": "one", "text": "a\nb é"},
        {"title": "a.jsonl:2", "text": "c"},
        {"title": "b.txt", "text": "dd"},
    ]
    assert [json.loads(line)["text"] for line in record_lines(files, {1})] == ["c"]
