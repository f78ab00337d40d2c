"""A sample of a text is from all over it: whole records or windows of them, each with its names."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text.records import TextFile
from stages.text.sample import (
    REACH,
    RecordRange,
    Sample,
    SampleFacts,
    draw_sample,
    is_tested_by_few,
    record_lines,
    sample_text,
    window_texts,
)
from stages.text.survey import record_sizes
from tests.builders.surveyed import written


def length(ranges: list[RecordRange]) -> int:
    return sum(part.stop - part.start for part in ranges)


def test_small_records_are_drawn_whole_from_all_of_the_text() -> None:
    sizes = [100] * 1_000
    sample = draw_sample(sizes, max_bytes=25_000, scored=5_000, tested=2_500)
    numbers = sorted(part.record for part in sample.ranges)
    assert len(set(numbers)) == len(numbers) == 250
    assert min(numbers) < 20 and max(numbers) > 980 and 450 < mean(numbers) < 550
    assert 400 < mean(part.record for part in sample.scored) < 600
    assert all((part.start, part.stop) == (0, 100) for part in sample.ranges)
    assert SampleFacts.of_sample(sample, sizes) == SampleFacts(250, 1_000, bytes=25_000)


def test_large_records_are_read_through_windows_from_anywhere_in_them() -> None:
    sizes = [30_000, 2_000, 9_000] * 250
    sample = draw_sample(sizes, max_bytes=400_000, scored=80_000, tested=40_000)
    part = SampleFacts.of_sample(sample, sizes)
    assert part.window is not None and 3_000 < part.window <= 4_000 and not part.is_shared
    places = [one.start / sizes[one.record] for one in sample.ranges if sizes[one.record] > 4_000]
    assert 0.3 < mean(places) < 0.6 and min(places) == 0 and max(places) > 0.85
    # A record is read through one window, and those that are scored are not learned.
    assert part.num_read == len(sample.ranges)


def test_of_few_books_windows_of_each_are_learned_and_others_are_tested() -> None:
    sizes = [500_000, 300_000, 800_000, 900_000, 400_000, 700_000, 600_000]
    sample = draw_sample(sizes, max_bytes=800_000, scored=160_000, tested=80_000)
    part = SampleFacts.of_sample(sample, sizes)
    assert (part.num_read, part.of, part.is_shared) == (7, 7, True)
    assert {one.record for one in sample.learned} == {one.record for one in sample.scored}
    assert len(set(sample.ranges)) == len(sample.ranges), "none is both learned and tested"
    by_book = [sorted(one for one in sample.ranges if one.record == book) for book in range(7)]
    assert all(ranges[-1].stop > 0.7 * sizes[ranges[0].record] for ranges in by_book)


def test_the_same_text_gives_the_same_sample() -> None:
    first, again = (draw_sample([900] * 500, 50_000, 10_000, 5_000) for _ in range(2))
    assert first == again


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=80), st.integers(20_000, 500_000))
def test_a_sample_fills_its_part_and_is_tested_by_ten(sizes: list[int], most: int) -> None:
    tested = most // 10
    sample = draw_sample(sizes, most, 2 * tested, tested)
    assert all(0 <= start < stop <= sizes[number] for number, start, stop in sample.ranges)
    assert all(stop - start <= tested // 10 for _, start, stop in sample.ranges)
    assert length(sample.ranges) <= most + tested // 5
    assert length(sample.ranges) >= min(most, sum(sizes))
    ordered = sorted(sample.ranges)
    for before, after in pairwise(ordered):
        assert before.record < after.record or before.stop <= after.start


def test_a_sample_for_measuring_is_from_all_over_a_text(tmp_path: Path) -> None:
    """The head of a text may be of another kind: headers, a table of contents."""
    files = [written(tmp_path, "a.txt", "head " * 20_000 + "\n" + "body\n" * 180_000)]
    sizes = record_sizes(files)
    text = sample_text(files, sizes, 100_000)
    assert len(text) == pytest.approx(100_000, rel=0.05)
    assert 0.05 < text.count("head") / text.count("body") < 0.2
    short = [written(tmp_path, "b.txt", "one\ntwo\n" * 99)]
    assert sample_text(short, record_sizes(short), 10_000) == "one\ntwo\n" * 99


@pytest.mark.parametrize("count", [1, 12, 30])
def test_where_all_of_a_text_is_read_nothing_is_lost(count: int, tmp_path: Path) -> None:
    texts = [
        "".join(f"line {line} of {number}\n" for line in range(300)) for number in range(count)
    ]
    rows = [json.dumps({"id": n, "text": text}) for n, text in enumerate(texts)]
    table = written(tmp_path, "a.jsonl", "\n".join(rows))
    sizes, total = record_sizes([table]), sum(map(len, texts))
    sample = draw_sample(sizes, total, total // 5, total // 10)
    lines = [json.loads(line) for line in record_lines([table], sample.ranges)]
    borders = zip(sample.ranges, lines, strict=True)
    parts = sorted((part.record, part.start, line["text"]) for part, line in borders)
    read = [
        "".join(text for record, _, text in parts if record == number) for number in range(count)
    ]
    assert read == texts
    assert all(line["text"].endswith("\n") for line in lines)


def test_lines_hold_the_names_of_records_and_of_files(tmp_path: Path) -> None:
    records = [{"id": 7, "title": "one", "text": "a\nb é", "other": 1}, {"text": "c"}]
    table = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, records)))
    files: list[TextFile] = [table, written(tmp_path, "b.txt", "dd")]
    assert record_sizes(files) == [6, 1, 2]

    def lines(*numbers: int) -> list[dict]:
        ranges = [RecordRange(number, 0, 9) for number in numbers]
        return [json.loads(line) for line in record_lines(files, ranges)]

    assert lines(0, 1, 2) == [
        {"id": 7, "title": "one", "text": "a\nb é"},
        {"title": "a.jsonl:2", "text": "c"},
        {"title": "b.txt", "text": "dd"},
    ]
    assert [line["text"] for line in lines(2, 1)] == ["dd", "c"]


@given(
    st.text(st.sampled_from("ab é\n."), max_size=300),
    st.lists(st.integers(0, 400), max_size=4, unique=True),
    st.integers(1, 50),
)
def test_windows_that_follow_each_other_give_all_of_the_text(
    text: str, borders: list[int], block: int
) -> None:
    places = sorted({0, *borders, 2_000})
    ranges = [RecordRange(0, *pair) for pair in pairwise(places)]
    blocks = (text[start : start + block] for start in range(0, len(text), block))
    assert "".join(window_texts(blocks, ranges)) == text


def test_a_window_in_a_long_text_is_what_stands_there() -> None:
    """Its borders are at the ends of lines within reach; only some blocks are held."""
    text = "".join(f"line {number:06}\n" for number in range(100_000))
    ranges = [RecordRange(0, 600_005, 600_100), RecordRange(0, 900_000, 900_013)]
    blocks = (text[start : start + 5_000] for start in range(0, len(text), 5_000))
    first, second = window_texts(blocks, ranges)
    assert first == text[600_000:600_096] and second == text[900_000:900_012]


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("One line. More\nnext", 17, "One line. More\n"),
        ("One. Two is a sentence", 12, "One. "),
        ("Two words", 6, "Two "),
        ("é" * 5, 5, "éé"),
        ("\n" + "a" * 2 * REACH, 2 * REACH - 1, "\n" + "a" * (2 * REACH - 2)),
    ],
)
def test_a_border_is_behind_a_line_a_sentence_a_word_or_a_character(
    text: str, stop: int, kept: str
) -> None:
    assert list(window_texts(iter([text]), [RecordRange(0, 0, stop)])) == [kept]


def test_few_records_in_a_test_split_are_noticed() -> None:
    assert is_tested_by_few([400_000] * 30, 1_200_000)
    assert not is_tested_by_few([400_000] * 3, 120_000)
    assert not is_tested_by_few([1_000] * 3_000, 300_000)


def test_a_description_counts_records_once() -> None:
    sample = Sample([RecordRange(0, 0, 5), RecordRange(1, 0, 9)], [RecordRange(0, 5, 9)])
    assert SampleFacts.of_sample(sample, [9, 9, 9]) == SampleFacts(2, 3, 5, True, 18)
