"""Reading of a split with passages before the context of every stride."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch

from stages.encoding.encode import SplitReader
from stages.examples.batching import padded
from stages.examples.examples import BATCH_TOKENS, Batch, Block
from stages.examples.windows import Window
from stages.models.language_model import LanguageModel
from stages.open_book.book import Book, Opened
from stages.open_book.settings import OpenBook


def stride_windows(
    offsets: np.ndarray, stride: int, context: int, start: int, stop: int, origin: int | None = None
) -> list[Window]:
    """Windows that score `stride` tokens each, the last of `context` inputs; all that score a token
    in [start, stop).

    Unlike `stages.examples.windows`, the first tokens of a text are scored in strides, too.

    Args:
        offsets: int [D + 1], where windows begin anew, and the end of the text.
        origin: a token at which a stride begins; None: strides begin where windows begin anew.

    >>> for w in stride_windows(np.array([0, 7]), stride=2, context=4, start=0, stop=7):
    ...     print(f"reads {w.start}-{w.stop - 1}, scores {w.scored_from}-{w.stop - 1}")
    reads 0-1, scores 0-1
    reads 0-3, scores 2-3
    reads 2-5, scores 4-5
    reads 4-6, scores 6-6
    """
    windows = []
    for begin, end in pairwise(offsets.tolist()):
        if end <= start or begin >= stop:
            continue
        # Strides begin at grid + number · stride. With an origin the first one is shorter, so that
        # one begins there.
        grid = begin if origin is None else begin - (begin - origin) % stride
        first_token = max(start, begin)
        last_token = min(stop, end) - 1
        first = (first_token - grid) // stride
        last = (last_token - grid) // stride
        for number in range(first, last + 1):
            stride_start = grid + number * stride
            stride_stop = stride_start + stride
            # Where the text ends must not change what is read before: the window of a whole stride.
            window_start = max(begin, stride_stop - context)
            window_stop = min(stride_stop, end)
            scored_from = max(begin, stride_start)
            windows.append(Window(window_start, window_stop, scored_from))
    return windows


class QuotedPassage(NamedTuple):
    """A passage of the book, tokens [begin, end) of its text, before tokens [start, stop) of a
    split.
    """

    start: int
    stop: int
    number: int
    begin: int
    end: int
    score: float


@dataclass(frozen=True)
class BookReader(SplitReader):
    """Reader of a split that puts passages before each window: d ; c_t, where c_t is shortened to
    make room.

    The window of a stride is read anew, at positions that follow those of the passages.

    Source: Ram et al. 2023 (In-Context RALM, arXiv:2302.00083), equation 3.
    """

    rereads: ClassVar[bool] = True
    settings: OpenBook
    book: Book | None = None
    """None: no passage is read, and windows are as short as if there were one."""
    origin: int | None = None
    """Token of a text from outside at which a stride begins; None: strides begin with the text."""

    @classmethod
    def of(cls, reader: SplitReader, settings: OpenBook, book: Book) -> Self:
        """The reader of the same split with a book."""
        return cls(
            reader.corpus,
            reader.windows,
            reader.by_document,
            reader.device,
            reader.precision,
            settings,
            book,
        )

    def counted_from(self, place: int) -> Self:
        return replace(self, origin=place)

    @property
    def closed(self) -> Self:
        """The same windows without passages: what the room costs."""
        return replace(self, book=None)

    @property
    def plain(self) -> SplitReader:
        """A reader of the same split in whole windows."""
        return SplitReader(self.corpus, self.windows, self.by_document, self.device, self.precision)

    def stride_windows(self, split: str, start: int, stop: int) -> list[Window]:
        """The windows that score tokens [start, stop), without their passages."""
        context = self.windows.context - self.settings.room
        offsets = self._offsets(split)
        stride = self.settings.stride
        return stride_windows(offsets, stride, context, start, stop, self.origin)

    def open_at(self, split: str, windows: Sequence[Window]) -> Opened | None:
        """The passages that windows of a split are read with; None: there is no book."""
        if self.book is None:
            return None
        offsets = self._offsets(split)
        scored = [window.scored_from for window in windows]
        starts = offsets[np.searchsorted(offsets, scored, side="right") - 1]
        return self.book.open_at(self, split, windows, starts)

    def passage_tokens(self, opened: Opened | None, count: int) -> list[np.ndarray]:
        """Tokens before each of `count` windows, int64 [n] each."""
        if opened is None or self.book is None:
            return [np.zeros(0, np.int64)] * count
        return [self.book.tokens(numbers) for numbers in opened.chosen.numbers]

    def quoted(self, split: str, start: int, stop: int) -> list[QuotedPassage]:
        """The passages before tokens [start, stop) of a split, stride by stride, the best first."""
        windows = self.stride_windows(split, start, stop)
        opened = self.open_at(split, windows)
        if opened is None or self.book is None:
            return []
        bounds = self.book.passages.bounds
        numbers = opened.chosen.numbers.tolist()
        scores = opened.chosen.scores.tolist()
        quoted = []
        for window, window_numbers, window_scores in zip(windows, numbers, scores, strict=True):
            stride_start = max(start, window.scored_from)
            stride_stop = min(stop, window.stop)
            for number, score in zip(window_numbers, window_scores, strict=True):
                # Fewer passages were found than there is room for.
                if number < 0:
                    continue
                begin, end = bounds[number : number + 2].tolist()
                passage = QuotedPassage(stride_start, stride_stop, number, begin, end, score)
                quoted.append(passage)
        return quoted

    def blocks(
        self,
        model: LanguageModel,
        split: str,
        start: int,
        stop: int,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[Block]:
        """Blocks of tokens [start, stop) of a split, of windows behind their passages."""
        windows = self.stride_windows(split, start, stop)
        opened = self.open_at(split, windows)
        passages = self.passage_tokens(opened, len(windows))
        windows_per_block = max(1, batch_tokens // self.windows.context)
        for first in range(0, len(windows), windows_per_block):
            part = slice(first, first + windows_per_block)
            yield self._block(split, start, stop, windows[part], passages[part])

    def _block(
        self,
        split: str,
        start: int,
        stop: int,
        windows: Sequence[Window],
        passages: Sequence[np.ndarray],
    ) -> Block:
        """A block of windows of a split that score tokens of [start, stop)."""
        rows = []
        moved = []
        for window, passage in zip(windows, passages, strict=True):
            context = self.before(split, window.start, window.stop)
            rows.append(np.concatenate((passage, context)))
            # The window begins as many places earlier as the passage has tokens.
            moved.append(Window(window.start - len(passage), window.stop, window.scored_from))
        inputs, _ = padded(rows, self.corpus.eos)

        first = max(start, windows[0].scored_from)
        last = min(stop, windows[-1].stop)
        batch = Batch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(self.tokens(split, first, last)),
            places=np.zeros_like(inputs),
        )
        return Block(first, last, moved, batch, continues=False)

    def _offsets(self, split: str) -> np.ndarray:
        """Where windows begin anew, and the end of the split, int64."""
        offsets = self.documents(split)
        return offsets if self.by_document else offsets[[0, -1]]
