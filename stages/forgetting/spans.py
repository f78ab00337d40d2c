"""Places of a document in an artifact, and how the artifact holds it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

ROWS = "rows"
"""Part of an artifact whose rows are of no one split."""


class Span(NamedTuple):
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

    def moved(self, part: str) -> "Span":
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
    spans: tuple[Span, ...] = ()
    files: tuple[str, ...] = ()
    """Files of the artifact that hold it; empty: those of the arrays."""

    @property
    def document_spans(self) -> tuple[Span, ...]:
        """Spans of the documents themselves."""
        return tuple(span for span in self.spans if not span.is_copy)

    @property
    def copies(self) -> tuple[Span, ...]:
        """Spans of copies in other documents."""
        return tuple(span for span in self.spans if span.is_copy)

    @property
    def only_copies(self) -> bool:
        """Whether it holds no more than copies in other documents."""
        return bool(self.copies) and not self.document_spans


def in_part(spans: Iterable[Span], *parts: str) -> tuple[Span, ...]:
    """The spans that lie in these parts."""
    return tuple(span for span in spans if span.part in parts)


def clipped(spans: Iterable[Span], start: int, stop: int) -> tuple[Span, ...]:
    """The parts of spans that lie in rows [start, stop).

    >>> clipped([Span("train", 2, 9, "a"), Span("train", 9, 12, "b")], 0, 6)
    (Span(part='train', start=2, stop=6, document='a', is_copy=False),)
    """
    cut = (span._replace(start=max(span.start, start), stop=min(span.stop, stop)) for span in spans)
    return tuple(span for span in cut if span.start < span.stop)


def in_segments(spans: Iterable[Span], length: int, segments: int) -> tuple[Span, ...]:
    """Segments of `length` tokens that hold tokens of spans.

    >>> in_segments([Span("train", 7, 9, "a")], length=4, segments=9)
    (Span(part='train', start=1, stop=3, document='a', is_copy=False),)
    """
    touched = (
        span._replace(start=span.start // length, stop=-(-span.stop // length)) for span in spans
    )
    return clipped(touched, 0, segments)


def spelled(spans: Sequence[Span], max_ranges: int = 3) -> str:
    """Rows of spans for people, the last one of each included, as `--forget` counts.

    >>> spelled([Span("train", 1204, 3378, "a"), Span("train", 9, 10, "a")])
    'train 9, 1,204-3,377'
    """
    ranges_of_part = defaultdict[str, list[str]](list)
    for span in sorted(spans, key=lambda span: span[:3]):
        last = "" if span.rows == 1 else f"-{span.stop - 1:,}"
        ranges_of_part[span.part].append(f"{span.start:,}{last}")

    texts = []
    for part, ranges in ranges_of_part.items():
        num_hidden = len(ranges) - max_ranges
        more = f" and {num_hidden:,} more" if num_hidden > 0 else ""
        texts.append(f"{part} {', '.join(ranges[:max_ranges])}{more}")
    return "; ".join(texts)
