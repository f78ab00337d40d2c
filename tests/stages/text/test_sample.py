"""A part of many records is whole ones, spread over all of them, each with its names."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text.records import TextFile
from stages.text.sample import (
    Part,
    RecordRange,
    choose_records,
    is_tested_by_few,
    part_length,
    record_lines,
    spread_records,
)
from stages.text.survey import record_sizes
from tests.stages.text.test_survey import written


def test_records_are_spread_over_all_of_the_text_up_to_its_end() -> None:
    chosen = spread_records([15_000] * 60, 50_000)
    assert len(chosen) == 3 and max(chosen) - min(chosen) >= 30
    many = sorted(spread_records([100] * 1_000, 25_000))
    gaps = [after - before for before, after in pairwise(many)]
    assert 235 <= len(many) <= 250 and min(many) < 8 and max(many) > 990 and max(gaps) <= 8


def test_records_that_are_too_large_to_be_taken_whole_are_not_taken() -> None:
    assert spread_records([900_000], 50_000) == spread_records([60_000] * 10, 50_000) == []
    assert spread_records([30_000, 900_000], 50_000) == []  # one record is no more than a beginning
    assert set(spread_records([900_000, *[10_000] * 9], 50_000)) <= set(range(1, 10))


def test_lines_hold_the_names_of_records_and_of_files(tmp_path: Path) -> None:
    records = [{"id": 7, "title": "one", "text": "a\nb é", "other": 1}, {"text": "c"}]
    table = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, records)))
    files: list[TextFile] = [table, written(tmp_path, "b.txt", "dd")]
    assert record_sizes(files) == [6, 1, 2]
    lines = [
        json.loads(line)
        for line in record_lines(
            files, [RecordRange(0, 0, 9), RecordRange(1, 0, 9), RecordRange(2, 0, 9)]
        )
    ]
    assert lines == [
        {"id": 7, "title": "one", "text": "a\nb é"},
        {"title": "a.jsonl:2", "text": "c"},
        {"title": "b.txt", "text": "dd"},
    ]
    assert [
        json.loads(line)["text"]
        for line in record_lines(files, [RecordRange(2, 0, 9), RecordRange(1, 0, 9)])
    ] == [
        "dd",
        "c",
    ]


def test_large_records_are_cut_so_that_many_are_read_and_the_last_are_from_all_over_the_text() -> (
    None
):
    sizes, most, tested = [30_000, 2_000, 9_000] * 250, 400_000, 40_000
    length = part_length(sizes, most, tested)
    assert length is not None and length <= tested / 10
    chosen = spread_records([min(size, length) for size in sizes], most)
    last = sorted(chosen[-10:])
    assert len(chosen) > 100 and last[0] < 250 and last[-1] > 500


@given(st.lists(st.integers(1, 5_000), min_size=12, max_size=80), st.integers(1_000, 50_000))
def test_the_records_fill_the_part_or_are_as_long_as_the_test_split_allows(
    sizes: list[int], most: int
) -> None:
    length = part_length(sizes, most, most // 10)
    filled = sum(min(size, length or size) for size in sizes)
    assert filled <= most or length == most // 10 // 12


@given(st.lists(st.integers(500, 50_000), min_size=10, max_size=80), st.integers(20_000, 2_000_000))
def test_ten_records_are_tested_where_there_are_twenty(sizes: list[int], most: int) -> None:
    tested = most // 10
    chosen = choose_records(sizes, most, tested)
    if chosen:
        lengths = [stop - start for _, start, stop in chosen]
        assert all(0 <= start < stop <= sizes[number] for number, start, stop in chosen)
        assert not is_tested_by_few(lengths, tested)
        assert sum(lengths) <= max(most, len(chosen) * (tested // 12 + 1))


@pytest.mark.parametrize("count", range(10, 20))
def test_of_few_records_ten_are_tested_by_their_ends_and_nothing_is_lost(
    count: int, tmp_path: Path
) -> None:
    texts = [
        "".join(f"line {line} of {number}\n" for line in range(300)) for number in range(count)
    ]
    table = written(
        tmp_path,
        "a.jsonl",
        "\n".join(json.dumps({"id": n, "text": t}) for n, t in enumerate(texts)),
    )
    sizes, total = record_sizes([table]), sum(map(len, texts))
    chosen = choose_records(sizes, total, total // 10)
    assert Part.of_ranges(chosen, sizes) == (count, count, None, True)
    lines = [json.loads(line) for line in record_lines([table], chosen)]
    assert len({line["id"] for line in lines[-10:]}) == 10
    found = {
        number: "".join(line["text"] for line in lines if line["id"] == number)
        for number in range(count)
    }
    assert list(found.values()) == texts
    assert abs(sum(len(line["text"]) for line in lines[-10:]) - total // 10) < 200


def test_novels_that_all_fit_are_tested_by_the_beginnings_of_ten_from_all_over() -> None:
    chosen = choose_records([400_000] * 30, 12_000_000, 600_000)
    last = sorted(chosen[-10:])
    assert (
        {taken[1:] for taken in last} == {(0, 60_000)}
        and last[0].record < 6
        and last[-1].record > 24
    )
    assert sum(stop for _, _, stop in chosen) - 600_000 >= 19 * 400_000


def test_a_cut_record_ends_with_a_line_and_keeps_its_names(tmp_path: Path) -> None:
    table = written(tmp_path, "a.jsonl", json.dumps({"id": 7, "text": "a line\né é é\n" * 50}))
    (line,) = map(json.loads, record_lines([table], [RecordRange(0, 0, 100)]))
    assert (
        line["id"] == 7 and line["text"].endswith("\n") and 80 <= len(line["text"].encode()) <= 100
    )
