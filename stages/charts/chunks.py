"""Series in charts of a few each: more lines than a person can tell apart go into a chart of their own."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST = 6


def in_charts(series: Sequence[T], most: int = MOST) -> Iterator[tuple[str, Sequence[T]]]:
    """Equal parts of at most `most`, and what tells their charts apart: nothing, or `-1`, `-2`, …"""
    count = -(-len(series) // most)
    for part in range(count):
        start, stop = (len(series) * edge // count for edge in (part, part + 1))
        yield ("" if count == 1 else f"-{part + 1}"), series[start:stop]
