"""Way in which a model reads a range of tokens, chosen by the settings of its backbone. Free of
torch.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from stages.config import Settings, StageConfig
from stages.examples import Way

if TYPE_CHECKING:
    import numpy as np

    from stages.examples.windows import Window


class Cutting(NamedTuple):
    """Windows of `context` inputs that begin `stride` apart; one stream; or a pooled window for
    each token.
    """

    way: Way
    context: int
    stride: int
    by_document: bool = False
    """Whether windows, or the state of the stream, start anew at each document."""
    document_offsets: bool = False
    """Whether layers need the offset of each input within its document."""

    def batches(
        self, documents: "np.ndarray", start: int, stop: int, batch_tokens: int
    ) -> "Iterator[list[Window]]":
        """The windows that score tokens [start, stop); each list is read together.

        A list holds neighbours of the same length, with at most `batch_tokens` inputs in total, but
        at least one window.

        Args:
            documents: int [D + 1], where documents start, and the end of the split.

        >>> import numpy as np
        >>> halves = Cutting("windows", 4, 4).batches(np.array([0, 9]), 0, 9, batch_tokens=8)
        >>> [[(w.start, w.stop) for w in batch] for batch in halves]
        [[(0, 4), (4, 8)], [(8, 9)]]
        >>> list(Cutting("stream", 4, 4, by_document=True).batches(np.array([0, 3, 9]), 0, 9, batch_tokens=8))
        [[Window(start=0, stop=3, scored_from=0)], [Window(start=3, stop=9, scored_from=3)]]
        """
        # These load numpy, which `--help` does without.
        from stages.examples.windows import Window, document_windows, own_windows, windows

        fresh_starts = documents if self.by_document else None
        if self.way == "stream":
            borders = []
            if fresh_starts is not None:
                is_inside = (fresh_starts > start) & (fresh_starts < stop)
                borders = fresh_starts[is_inside].tolist()
            # Empty documents have equal borders; a dictionary keeps one of them, in order.
            distinct = dict.fromkeys([start, *borders, stop])
            for begin, end in pairwise(distinct):
                for first in range(begin, end, batch_tokens):
                    last = min(first + batch_tokens, end)
                    yield [Window(first, last, scored_from=first)]
            return

        if self.way == "pooled":
            scoring = own_windows(self.context, start, stop, fresh_starts)
        elif fresh_starts is None:
            scoring = windows(int(documents[-1]), self.context, self.stride, start, stop)
        else:
            scoring = document_windows(fresh_starts, self.context, self.stride, start, stop)

        size = max(1, batch_tokens // self.context)
        for _, equally_long in groupby(scoring, key=lambda window: window.stop - window.start):
            group = list(equally_long)
            for first in range(0, len(group), size):
                yield group[first : first + size]


class Lengths(NamedTuple):
    """Positions before its segment that an input attends to, and further slots or entries that
    layers remember.

    None: the carried state has no such length.
    """

    carried: int | None = None
    remembered: int | None = None

    @property
    def cached(self) -> int:
        """Positions before its segment that an input attends to; 0 where there is no such length."""
        return self.carried or 0


class WindowSettings(NamedTuple):
    """Inputs of a window, inputs between the starts of two windows, and lengths of the carried
    state.

    A backbone that attends to `mem_length` positions before its segment has segments of `context`
    inputs. Its layers may remember `long_length` further slots or entries. Both are None for other
    backbones.
    """

    context: int
    stride: int
    mem_length: int | None = None
    long_length: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "WindowSettings":
        """Window settings of a datastore or an evaluation, all resolved."""
        return cls(
            settings["context"],
            settings["stride"],
            settings.get("mem_length"),
            settings.get("long_length"),
        )


class AskedWindows(Settings):
    """Windows that a user asks for; a model fills in the rest."""

    context: Annotated[int, Field(gt=0)] | None = None
    """Tokens of a window or segment; None: the model's segment length."""
    stride: Annotated[int, Field(gt=0)] | None = None
    """Tokens between the starts of two windows; None: `context`, or 1 for an encoder."""
    mem_length: Annotated[int, Field(ge=0)] | None = None
    """Positions that the backbone carries from segment to segment; None: the model's."""
    long_length: Annotated[int, Field(ge=0)] | None = None
    """Slots or entries of layers with a memory of their own, beyond carried positions; None: the
    model's.
    """

    @property
    def asked_windows(self) -> dict[str, int | None]:
        """The requested values, by name."""
        return {name: getattr(self, name) for name in AskedWindows.model_fields}


class WindowedConfig(AskedWindows, StageConfig):
    """Settings of a stage that reads a split with a model."""

    @property
    def windows(self) -> WindowSettings:
        """How the model reads, once resolved."""
        return WindowSettings.of(self.asked_windows)
