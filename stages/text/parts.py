"""A part of a text that is many records: whole ones from all over it, with what they are called."""

import json
from collections.abc import Iterable, Iterator, Sequence

from stages.text.automatic import text_bytes
from stages.text.files import compression
from stages.text.records import TextFile, records

LEAST_FILLED = 0.5
"""Minimum share of the part that whole records must fill: below it they are too large to be taken whole."""
FILLED = 0.95
"""Share of the part from which no more small records are looked for."""


def record_sizes(files: Iterable[TextFile]) -> list[int]:
    """Bytes of UTF-8 of each record, one after the other. Raises: DataError for whatever is wrong with them."""
    return [size for file in files for size in _sizes(file)]


def _sizes(file: TextFile) -> Iterator[int]:
    if file.format == "txt" and not compression(file.path):
        yield text_bytes([file])
    else:
        for record in records(file):
            yield sum(len(block.encode()) for block in record.blocks)


def spread_records(sizes: Sequence[int], most: int) -> set[int]:
    """Numbers of records of so many bytes in all, as evenly apart as may be; empty where that takes cutting them."""
    chosen: set[int] = set()
    left = most
    for number in _spread(len(sizes)):
        if 0 < sizes[number] <= left:
            chosen.add(number)
            left -= sizes[number]
        if left <= (1 - FILLED) * most:
            break
    return chosen if len(chosen) > 1 and most - left >= LEAST_FILLED * most else set()


def record_lines(files: Iterable[TextFile], chosen: set[int]) -> Iterator[str]:
    """Those records as lines of `.jsonl`, with what names them: their own fields, else the name of the file."""
    numbered = enumerate(record for file in files for record in records(file))
    for number, record in numbered:
        text = "".join(block for block in record.blocks if number in chosen)
        if number in chosen:
            yield json.dumps({**(record.fields or {"title": record.name}), "text": text}, ensure_ascii=False) + "\n"


def _spread(count: int) -> list[int]:
    """All numbers below a count, of which those that come first lie evenly apart: in the order of their bits reversed.

    >>> _spread(6)
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))
