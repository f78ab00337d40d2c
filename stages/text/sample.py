"""A sample of a text: records, or windows of them, drawn at random from all of it, with names."""

import json
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

from stages.text.records import TextFile, records

FEWEST_TESTED = 10
"""Minimum number of records, or of windows of records, in a test split."""
SEED = 0
"""Seed of the draws: the same text gives the same sample."""
REACH = 1000
"""Bytes before the border of a window in which the end of a line, sentence or word is looked for."""
ENDS = (b"\n", b". ", b" ")
"""Ends of a line, sentence and word; the first that stands within reach is the border."""


class RecordRange(NamedTuple):
    """Bytes [start, stop) to read of a record, given by its number."""

    record: int
    start: int
    stop: int


class Sample(NamedTuple):
    """The part of a text that is read."""

    learned: list[RecordRange]
    """In the order of the text."""
    scored: list[RecordRange]
    """Valid and test, in random order."""

    @property
    def ranges(self) -> list[RecordRange]:
        """All of it, in the order in which it is read: the last is tested."""
        return [*self.learned, *self.scored]


class SampleFacts(NamedTuple):
    """Description of a sample."""

    num_read: int
    """Number of records that are read, whole or in windows."""
    of: int
    """Number of all records."""
    window: int | None = None
    """Bytes of the longest window; None: records are read whole."""
    is_shared: bool = False
    """Whether other windows of scored records are learned."""
    bytes: int = 0
    """Bytes that are read."""

    @classmethod
    def of_sample(cls, sample: Sample, sizes: Sequence[int]) -> "SampleFacts":
        """Describe a sample of records, whose `sizes` are in bytes."""
        learned = {part.record for part in sample.learned}
        scored = {part.record for part in sample.scored}
        windows = [
            part.stop - part.start
            for part in sample.ranges
            if part.stop - part.start < sizes[part.record]
        ]
        return cls(
            num_read=len(learned | scored),
            of=len(sizes),
            window=max(windows, default=None),
            is_shared=bool(learned & scored),
            bytes=sum(part.stop - part.start for part in sample.ranges),
        )


def is_tested_by_few(sizes: Sequence[int], tested: int) -> bool:
    """Whether the last `tested` bytes, the test split, hold too few of many records.

    >>> is_tested_by_few([1_000] * 100, tested=10_000), is_tested_by_few([1_000] * 99, tested=9_900)
    (False, True)
    """
    ends = accumulate(reversed(sizes))
    return len(sizes) >= FEWEST_TESTED and sum(end <= tested for end in ends) < FEWEST_TESTED


def draw_sample(sizes: Sequence[int], max_bytes: int, scored: int, tested: int) -> Sample:
    """Draw about `max_bytes` bytes from all over a text.

    Records are read whole, or through windows of a tenth of the test split, so that ten of them are
    tested. A record is either learned or scored where there is text enough for that; in a text of
    few records, other windows of the same ones are learned.

    Args:
        sizes: bytes of each record.
        scored: bytes for valid and test.
        tested: bytes for test alone.

    >>> sample = draw_sample([500] * 1_000, max_bytes=40_000, scored=8_000, tested=5_000)
    >>> len(sample.learned), len(sample.scored), sample.scored[0]
    (64, 16, RecordRange(record=439, start=0, stop=500))
    """
    window = max(1, tested // FEWEST_TESTED)
    windows = _draw_windows(sizes, window, max_bytes)
    held_out = _first_bytes(windows, scored)
    records_held_out = {part.record for part in held_out}
    learned_bytes = max_bytes - sum(part.stop - part.start for part in held_out)

    other_bytes = 0
    for number, size in enumerate(sizes):
        if number not in records_held_out:
            other_bytes += size
    if other_bytes >= learned_bytes:
        windows = (part for part in windows if part.record not in records_held_out)
    return Sample(sorted(_first_bytes(windows, learned_bytes)), held_out)


def _draw_windows(sizes: Sequence[int], window: int, max_bytes: int) -> Iterator[RecordRange]:
    """Windows of records in random order: one of each record, then a second one, and so on.

    No more of a record are drawn than `max_bytes` bytes can hold.
    """
    generator = random.Random(SEED)
    order = [number for number, size in enumerate(sizes) if size]
    generator.shuffle(order)
    waiting: dict[int, list[RecordRange]] = {}
    for number in order:
        size = sizes[number]
        count = -(-size // window)
        num_drawn = min(count, max_bytes // window + 1)
        windows = []
        for index in generator.sample(range(count), num_drawn):
            # Windows of a record are of equal size, so that none is a short rest.
            start = index * size // count
            stop = (index + 1) * size // count
            windows.append(RecordRange(number, start, stop))
        first, *waiting[number] = windows
        yield first

    while waiting:
        for number in list(waiting):
            if waiting[number]:
                yield waiting[number].pop()
            else:
                del waiting[number]


def _first_bytes(windows: Iterator[RecordRange], max_bytes: int) -> list[RecordRange]:
    """The first ranges that hold `max_bytes` bytes; the others can still be drawn."""
    ranges = list[RecordRange]()
    bytes_left = max_bytes
    while bytes_left > 0 and (part := next(windows, None)) is not None:
        ranges.append(part)
        bytes_left -= part.stop - part.start
    return ranges


def sample_text(files: Iterable[TextFile], sizes: Sequence[int], max_bytes: int) -> str:
    """About `max_bytes` bytes from all over a text, for measuring it; all of a shorter one.

    Args:
        sizes: bytes of each record of the files.
    """
    sample = draw_sample(sizes, max_bytes, scored=0, tested=max_bytes // FEWEST_TESTED)
    texts, _ = _read(files, sample.ranges)
    return "".join(texts[part] for part in sample.ranges)


def record_lines(files: Iterable[TextFile], ranges: Sequence[RecordRange]) -> Iterator[str]:
    """Ranges of records, in order, as lines of `.jsonl` with their names: their own fields, else
    the file's name.

    Args:
        files: the files with the records.
        ranges: each begins and ends after a whole line, sentence or word.
    """
    texts, names = _read(files, ranges)
    for part in ranges:
        if texts[part]:
            line = {**names[part.record], "text": texts[part]}
            yield json.dumps(line, ensure_ascii=False) + "\n"


def _read(
    files: Iterable[TextFile], ranges: Sequence[RecordRange]
) -> tuple[dict[RecordRange, str], dict[int, Mapping[str, Any]]]:
    """The text of each range, and the names of their records."""
    ranges_of_record: dict[int, list[RecordRange]] = {}
    for part in sorted(ranges):
        ranges_of_record.setdefault(part.record, []).append(part)

    texts = dict[RecordRange, str]()
    names = dict[int, Mapping[str, Any]]()
    all_records = chain.from_iterable(map(records, files))
    for number, record in enumerate(all_records):
        parts = ranges_of_record.get(number, [])
        if parts:
            names[number] = record.fields or {"title": record.name}
        part_texts = window_texts(record.blocks, parts)
        for part, text in zip(parts, part_texts, strict=True):
            texts[part] = text
        # The next record begins where this one is read to its end.
        deque(record.blocks, maxlen=0)
    return texts, names


def window_texts(blocks: Iterator[str], ranges: Sequence[RecordRange]) -> Iterator[str]:
    r"""The text of each range of one record, in memory for one range at a time.

    A border is moved back behind the end of a line, sentence or word. Windows that follow each
    other give all of the text.

    Args:
        blocks: the text of the record.
        ranges: sorted, without overlap.

    >>> halves = [RecordRange(0, 0, 14), RecordRange(0, 14, 30)]
    >>> list(window_texts(iter(["One line.\nAnother", " one is long."]), halves))
    ['One line.\n', 'Another one is long.']
    """
    data = b""
    offset = 0
    for part in ranges:
        # What stands before a window decides where it begins.
        needed_from = part.start - REACH
        # One byte more says whether the record ends there.
        while offset + len(data) <= part.stop:
            block = next(blocks, None)
            if block is None:
                break
            data += block.encode()
            passed = min(max(0, needed_from - offset), len(data))
            data = data[passed:]
            offset = offset + passed
        begin = _border(data, part.start - offset)
        end = _border(data, part.stop - offset)
        yield data[begin:end].decode()


def _border(data: bytes, place: int) -> int:
    """Place of a border, moved back behind the last end of a line, sentence or word within reach."""
    if place <= 0 or place >= len(data):
        return min(max(place, 0), len(data))
    low = max(0, place - REACH)
    for end in ENDS:
        index = data.rfind(end, low, place)
        if index >= 0:
            return index + len(end)
    # No character is cut: bytes after its first one begin with the bits 10.
    while place and data[place] & 0b1100_0000 == 0b1000_0000:
        place -= 1
    return place
