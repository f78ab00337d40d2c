"""A range of a split's tokens as a shard of work. Free of torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from stages.artifacts.stage import Shard


@dataclass(frozen=True)
class TokenRange(Shard):
    """Tokens [start, stop) of a split."""

    start: int
    stop: int


R = TypeVar("R", bound=TokenRange)


def first_of_all(ranges: Sequence[R], beside: Sequence[R] = ()) -> list[tuple[R, float]]:
    """The first range, and how many times its tokens all of them have, those `beside` included; of none, none.

    >>> first_of_all([TokenRange("a", 0, 8), TokenRange("b", 8, 12)])
    [(TokenRange(key='a', start=0, stop=8), 1.5)]
    """
    if not ranges:
        return []
    first = ranges[0]
    return [(first, sum(one.stop - one.start for one in (*ranges, *beside)) / (first.stop - first.start))]
