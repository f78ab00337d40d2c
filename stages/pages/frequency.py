"""A table of perplexity by how often a token stands in the training text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.frequency import bucket_labels, counted_in
from stages.metrics import FEW_TOKENS, TOO_FEW_TOKENS
from stages.pages.source import Source


@dataclass(frozen=True)
class BucketTable:
    """Perplexity of each row of a report in each bucket, the most frequent tokens first."""

    source: Source
    counted_in: str
    buckets: Sequence[str]
    tokens: Sequence[int]
    rows: Sequence[Mapping[str, Any]]
    too_few: int = FEW_TOKENS
    fewest: int = TOO_FEW_TOKENS

    @property
    def few(self) -> list[bool]:
        """Which buckets have too few tokens to mean anything."""
        return [count < self.too_few for count in self.tokens]

    @property
    def none(self) -> list[bool]:
        """Which of them have so few that no figure is shown."""
        return [count < self.fewest for count in self.tokens]


def bucket_table(source: Source) -> BucketTable:
    """That of a report which has buckets."""
    frequency = source.metrics["frequency_buckets"]
    tokens = [bucket["tokens"] for bucket in frequency["buckets"]]
    return BucketTable(source, counted_in(source.metrics), bucket_labels(frequency), tokens, frequency["rows"])
