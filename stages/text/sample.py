"""A sample of a text of many records, spread over all of it, with the records' names."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from stages.text.records import TextFile, records

LEAST_FILLED = 0.5
"""Minimum share of the part that whole records must fill; otherwise they are too large to be taken
whole.
"""
FEWEST_TESTED = 10
"""Minimum number of records in a test split; if there are fewer than twice this number, the ends of
ten are tested.
"""
DOCUMENTS_TESTED = 12
"""Maximum number of records in a test split if records are cut."""
FILLED = 0.95
"""Filled share of the part above which the search for small records ends."""


class RecordRange(NamedTuple):
    """Bytes [start, stop) to read of a record, given by its number."""

    record: int
    start: int
    stop: int


class Part(NamedTuple):
    """The part of the records that is read."""

    taken: int
    """Number of records that are read, in part or whole."""
    of: int
    """Number of all records."""
    length: int | None = None
    """Bytes after which records are cut; None: they are read whole."""
    ends: bool = False
    """Whether the test split is the ends of records whose beginnings are learned."""

    @classmethod
    def of_ranges(cls, ranges: Sequence[RecordRange], sizes: Sequence[int]) -> "Part":
        """Describe ranges of records, whose `sizes` are in bytes."""
        stops = {number: stop for number, _, stop in ranges}
        cut = (stop for number, stop in stops.items() if stop < sizes[number])
        return cls(
            len(stops), len(sizes), max(cut, default=None), any(start for _, start, _ in ranges)
        )


def part_length(sizes: Sequence[int], most: int, tested: int) -> int | None:
    """Bytes after which each record is cut to fit a part of `most` bytes; None: no record is cut.

    With large whole records, the part would hold few, and the test split one or two. So all records
    are cut to a length at which they fill the part together. The length keeps the test split to at
    most `DOCUMENTS_TESTED` records.

    Args:
        sizes: bytes of each record.
        most: bytes of the part.
        tested: bytes of the part for the test split.

    >>> part_length([8_000] * 100, most=200_000, tested=20_000)
    2000
    >>> part_length([50_000] * 20, most=200_000, tested=20_000)
    10000
    >>> part_length([400_000, 300_000], most=200_000, tested=20_000)
    """
    if len(sizes) < DOCUMENTS_TESTED or sum(sizes) <= most:
        return None
    return max(_even_length(sizes, most), tested // DOCUMENTS_TESTED)


def _even_length(sizes: Sequence[int], most: int) -> int:
    """The largest length at which all cut records together take at most `most` bytes."""
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if sum(min(size, middle) for size in sizes) <= most
            else (low, middle - 1)
        )
    return low


def spread_records(sizes: Sequence[int], most: int) -> list[int]:
    """Numbers of records of about `most` bytes in total, spread evenly; empty if records would have
    to be cut.

    Their order is spread as well: the last ones, which are tested, come from all over the text.
    """
    chosen: list[int] = []
    left = most
    for number in _spread(len(sizes)):
        if 0 < sizes[number] <= left:
            chosen.append(number)
            left -= sizes[number]
        if left <= (1 - FILLED) * most:
            break
    return chosen if len(chosen) > 1 and most - left >= LEAST_FILLED * most else []


def is_tested_by_few(sizes: Sequence[int], tested: int) -> bool:
    """Whether the last `tested` bytes, the test split, hold too few of many records.

    >>> is_tested_by_few([1_000] * 100, tested=10_000), is_tested_by_few([1_000] * 99, tested=9_900)
    (False, True)
    """
    ends = accumulate(reversed(sizes))
    return len(sizes) >= FEWEST_TESTED and sum(end <= tested for end in ends) < FEWEST_TESTED


def choose_records(sizes: Sequence[int], most: int, tested: int) -> list[RecordRange]:
    """Choose the ranges of records to read, ordered so that the last ones are tested.

    If the tested records would be few, they are cut, and further ones fill the part. With fewer
    than twice `FEWEST_TESTED` records, the ends of some are tested and all else is learned.
    Otherwise half of the text would be lost.

    Returns: the ranges; empty if records are too large to be taken whole and too few to be cut.

    >>> choose_records([8_000] * 30, most=240_000, tested=24_000)[-1]
    RecordRange(record=23, start=0, stop=2400)
    >>> choose_records([8_000] * 10, most=80_000, tested=8_000)[-1]
    RecordRange(record=7, start=7200, stop=8000)
    """
    length = part_length(sizes, most, tested)
    taken = {
        number: sizes[number] if length is None else min(sizes[number], length)
        for number in range(len(sizes))
    }
    chosen = spread_records(list(taken.values()), most)
    if not is_tested_by_few([taken[number] for number in chosen], tested):
        return [RecordRange(number, 0, taken[number]) for number in chosen]
    learned, last = chosen[:-FEWEST_TESTED], chosen[-FEWEST_TESTED:]
    if len(learned) < FEWEST_TESTED:
        begins = {
            number: max(taken[number] // 2, taken[number] - tested // FEWEST_TESTED)
            for number in last
        }
        parts = [RecordRange(number, 0, begins.get(number, taken[number])) for number in chosen]
        return parts + [
            RecordRange(number, start, taken[number]) for number, start in begins.items()
        ]
    longest = _even_length([sizes[number] for number in learned], most - tested)
    stops = {number: min(sizes[number], longest) for number in learned}
    stops |= {number: min(sizes[number], tested // FEWEST_TESTED) for number in last}
    return [RecordRange(number, 0, stop) for number, stop in stops.items()]


def record_lines(files: Iterable[TextFile], chosen: Sequence[RecordRange]) -> Iterator[str]:
    """Chosen parts of records, in order, as lines of `.jsonl` with their names: their own fields,
    else the file's name.

    Args:
        files: the files with the records.
        chosen: each part begins and ends after a whole line, sentence or word.
    """
    wanted = {number for number, _, _ in chosen}
    texts, named = dict[int, str](), dict[int, Mapping[str, Any]]()
    for number, record in enumerate(record for file in files for record in records(file)):
        text = "".join(block for block in record.blocks if number in wanted)
        if number in wanted:
            texts[number], named[number] = text, record.fields or {"title": record.name}
    for number, start, stop in chosen:
        text = beginning(texts[number], stop)[len(beginning(texts[number], start)) :]
        yield json.dumps({**named[number], "text": text}, ensure_ascii=False) + "\n"


def beginning(text: str, length: int) -> str:
    r"""The first bytes of a text, cut after a line, sentence or word: the first of these that keeps
    at least half.

    >>> beginning("One line.\nAnother one is long.", 20)
    'One line.\n'
    >>> beginning("One. Two is a long sentence", 20)
    'One. Two is a long '
    """
    data = text.encode()
    if len(data) <= length:
        return text
    cut = data[:length].decode(errors="ignore")
    ends = (cut.rfind(end) + len(end) for end in ("\n", ". ", " ") if end in cut)
    return cut[: next((end for end in ends if 2 * end >= len(cut)), len(cut))]


def _spread(count: int) -> list[int]:
    """All numbers below `count`, in the order of their reversed bits: the first ones are spread
    evenly.

    >>> _spread(6)
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))
