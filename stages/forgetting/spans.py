"""Places of a document in an artifact, and how the artifact holds it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

ROWS = "rows"
"""Part of an artifact whose rows are of no one split."""


class RowSpan(NamedTuple):
    """Rows [start, stop) of an artifact that are tokens of a document, or of a copy of it."""

    part: str
    """Name of the split, or `rows`."""
    start: int
    stop: int
    document: str | None
    """Name of the document that has these rows; None: it has no name."""
    is_copy: bool = False
    """Whether it is another document than those that are looked for."""

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return self.stop - self.start

    def moved(self, part: str) -> "RowSpan":
        """The same rows in another artifact."""
        return self._replace(part=part)


class Way(StrEnum):
    """How an artifact holds a document."""

    TEXT = "text"
    """Its tokens."""
    KEYS = "keys"
    """Keys and values of its tokens."""
    CONTEXTS = "contexts"
    """Sorted contexts of its tokens."""
    NEIGHBORS = "neighbours"
    """Numbers of rows that are its tokens, or the neighbours of its tokens."""
    SEGMENTS = "segments"
    """Numbers of segments that are parts of it."""
    QUOTED = "quoted"
    """Files with tokens of it."""
    VOCABULARY = "vocabulary"
    """Types of tokens that were learned from it."""
    LEARNED = "learned"
    """Weights that were trained on it."""
    DERIVED = "derived"
    """Files that were made from artifacts which hold it."""
    UNFINISHED = "unfinished"
    """Files of interrupted work that read it."""


@dataclass(frozen=True)
class Holding:
    """One way in which an artifact holds documents."""

    reference: str
    digest: str
    """Digest of the artifact's bytes; empty for unfinished work."""
    way: Way
    spans: tuple[RowSpan, ...] = ()
    files: tuple[str, ...] = ()
    """Files of the artifact that hold it; empty: those of the arrays."""

    @property
    def document_spans(self) -> tuple[RowSpan, ...]:
        """Spans of the documents themselves."""
        return tuple(span for span in self.spans if not span.is_copy)

    @property
    def copies(self) -> tuple[RowSpan, ...]:
        """Spans of copies in other documents."""
        return tuple(span for span in self.spans if span.is_copy)

    @property
    def only_copies(self) -> bool:
        """Whether it holds no more than copies in other documents."""
        return bool(self.copies) and not self.document_spans


def in_part(spans: Iterable[RowSpan], *parts: str) -> tuple[RowSpan, ...]:
    """The spans that lie in these parts."""
    return tuple(span for span in spans if span.part in parts)


def clipped(spans: Iterable[RowSpan], start: int, stop: int) -> tuple[RowSpan, ...]:
    """The parts of spans that lie in rows [start, stop).

    >>> clipped([RowSpan("train", 2, 9, "a"), RowSpan("train", 9, 12, "b")], 0, 6)
    (RowSpan(part='train', start=2, stop=6, document='a', is_copy=False),)
    """
    result = []
    for span in spans:
        first = max(span.start, start)
        last = min(span.stop, stop)
        if first < last:
            result.append(span._replace(start=first, stop=last))
    return tuple(result)


def in_segments(spans: Iterable[RowSpan], length: int, segments: int) -> tuple[RowSpan, ...]:
    """Segments of `length` tokens that hold tokens of spans.

    >>> in_segments([RowSpan("train", 7, 9, "a")], length=4, segments=9)
    (RowSpan(part='train', start=1, stop=3, document='a', is_copy=False),)
    """
    touched = []
    for span in spans:
        first = span.start // length
        # Rounded up: a segment that holds one token of the span counts.
        stop = -(-span.stop // length)
        touched.append(span._replace(start=first, stop=stop))
    # Tokens behind the last whole segment are in none.
    return clipped(touched, 0, segments)


def spelled(spans: Sequence[RowSpan], max_ranges: int = 3) -> str:
    """Rows of spans for people, the last one of each included, as `--forget` counts.

    >>> spelled([RowSpan("train", 1204, 3378, "a"), RowSpan("train", 9, 10, "a")])
    'train 9, 1,204-3,377'
    """
    ranges_of_part = defaultdict[str, list[str]](list)
    for span in sorted(spans, key=lambda span: (span.part, span.start, span.stop)):
        first = f"{span.start:,}"
        last = f"{span.stop - 1:,}"
        ranges_of_part[span.part].append(first if span.rows == 1 else f"{first}-{last}")

    texts = []
    for part, ranges in ranges_of_part.items():
        shown = ", ".join(ranges[:max_ranges])
        num_hidden = len(ranges) - max_ranges
        more = f" and {num_hidden:,} more" if num_hidden > 0 else ""
        texts.append(f"{part} {shown}{more}")
    return "; ".join(texts)
