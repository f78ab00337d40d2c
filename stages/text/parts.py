"""A part of a text that is many records: from all over it, with what they are called."""

import json
from collections.abc import Iterable, Iterator, Sequence

from stages.text.automatic import text_bytes
from stages.text.files import compression
from stages.text.records import TextFile, records

LEAST_FILLED = 0.5
"""Minimum share of the part that whole records must fill: below it they are too large to be taken whole."""
DOCUMENTS_TESTED = 12
"""Records in a test split, about: ten at the least, as splits end between records."""
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


def part_length(sizes: Sequence[int], most: int, tested: int) -> int | None:
    """Bytes of a record beyond which a part of so many bytes leaves it off; None: no record is cut.

    Whole records, if large, would be few, and a test split of them one or two. So as much is read of each record as
    makes all of them fill the part, but never so little that the test split has more than `DOCUMENTS_TESTED` records.

    Args:
        sizes: bytes of each record.
        most: bytes of the part.
        tested: bytes of it for the test split.

    >>> part_length([8_000] * 100, most=200_000, tested=20_000)
    2000
    >>> part_length([50_000] * 20, most=200_000, tested=20_000)
    10000
    >>> part_length([400_000, 300_000], most=200_000, tested=20_000)
    """
    if len(sizes) < DOCUMENTS_TESTED or sum(sizes) <= most:
        return None
    low, high = 0, max(sizes)  # the largest length at which all records together fill no more than the part
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(size, middle) for size in sizes) <= most else (low, middle - 1)
    return max(low, tested // DOCUMENTS_TESTED)


def spread_records(sizes: Sequence[int], most: int) -> list[int]:
    """Numbers of records of so many bytes in all, as evenly apart as may be; empty where that takes cutting them.

    Their order spreads them, too: those at the end, which are tested, are from all over the text.
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


def record_lines(files: Iterable[TextFile], chosen: Sequence[int], length: int | None = None) -> Iterator[str]:
    """Those records, in that order, as lines of `.jsonl`, with what names them: their own fields, else the file's name.

    Args:
        files: what holds them.
        chosen: numbers of records.
        length: bytes of each, the rest of which is left off after a whole line, sentence or word; None: all.
    """
    wanted, lines = set(chosen), dict[int, str]()
    numbered = enumerate(record for file in files for record in records(file))
    for number, record in numbered:
        text = "".join(block for block in record.blocks if number in wanted)
        if number in wanted:
            fields = record.fields or {"title": record.name}
            lines[number] = json.dumps({**fields, "text": beginning(text, length)}, ensure_ascii=False) + "\n"
    yield from (lines[number] for number in chosen)


def beginning(text: str, length: int | None) -> str:
    """The first bytes of a text, up to the end of a line, a sentence or a word, whichever leaves half of them or more.

    >>> beginning("One line.\nAnother one is long.", 20)
    'One line.\n'
    >>> beginning("One. Two is a long sentence", 20)
    'One. Two is a long '
    """
    data = text.encode()
    if length is None or len(data) <= length:
        return text
    cut = data[:length].decode(errors="ignore")
    ends = (cut.rfind(end) + len(end) for end in ("\n", ". ", " ") if end in cut)
    return cut[: next((end for end in ends if 2 * end >= len(cut)), len(cut))]


def _spread(count: int) -> list[int]:
    """All numbers below a count, of which those that come first lie evenly apart: in the order of their bits reversed.

    >>> _spread(6)
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))
