"""A range of a split's tokens as a shard of work. Free of torch."""

from dataclasses import dataclass

from stages.artifacts.stage import Shard


@dataclass(frozen=True)
class TokenRange(Shard):
    """Tokens [start, stop) of a split."""

    start: int
    stop: int
