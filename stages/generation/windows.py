"""The windows in which a model reads growing texts: each input once, as long as its window lasts.

Position p of a text predicts its token p from inputs 0 … p. As in an evaluation, the window of a
position is the first that holds it. Where a text outgrows its window, the next one is read from its
beginning, once for every `stride` tokens.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.encoding.encode import SplitReader
from stages.examples.windows import Window, windows
from stages.models.backbone import Encoding, JoinsRows, State
from stages.models.computing import autocast
from stages.models.language_model import LanguageModel

WHOLE_STREAM = 1 << 60
"""Inputs of the one window of a model that carries a state past any window."""
INPUTS_AT_ONCE = 2048
"""Inputs of texts that are read from their beginnings in one pass, padding included."""


@dataclass(eq=False)
class TextWindow:
    """Inputs [begin, read) of a text, which were read, and the state after them."""

    inputs: Callable[[int, int], np.ndarray]
    """Gives inputs [start, stop) of the text, int64."""
    begin: int = 0
    read: int = 0
    state: State = None
    """None: nothing was read, or the state is a row of one that several texts share."""


class Span(NamedTuple):
    """Positions [start, stop) of a text, which its window is to read next."""

    window: TextWindow
    start: int
    stop: int


class WindowReader:
    """Reads positions of texts; single positions of several texts in one pass of the model."""

    def __init__(self, model: LanguageModel, reader: SplitReader) -> None:
        """Args:
        model: a model of text, which reads windows or a stream.
        reader: the windows, and how and where it computes.
        """
        self._model = model
        self._reader = reader
        self._in_pieces = model.config.in_pieces
        self._continues = self._in_pieces or model.config.carries_state
        self._rows: SharedRows | None = None
        if self._in_pieces and isinstance(model.backbone, JoinsRows):
            self._rows = SharedRows(model.backbone)

    def windows(self, start: int, stop: int) -> list[Window]:
        """The windows that hold positions [start, stop), or the segments of a stream."""
        settings = self._reader.windows
        return windows(stop, settings.context, settings.stride, start, stop)

    def read(self, spans: Sequence[Span]) -> list[Encoding]:
        """Representations of the positions of each span, [1, n, d]."""
        together = [span.window for span in spans if self._can_share(span)]
        of_window = self._read_together(together) if len(together) > 1 else {}
        return [of_window.get(span.window) or self._read_alone(span) for span in spans]

    def passes(self, lengths: Sequence[int]) -> list[list[int]]:
        """Texts that are read from their beginnings in one pass: their numbers, pass by pass.

        Texts of like length come together, so that little is padding.

        Args:
            lengths: positions of each text.
        """
        groups: list[list[int]] = []
        for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
            padded = (len(groups[-1]) + 1) * lengths[number] if groups else 0
            if groups and self._fits(lengths[number]) and padded <= INPUTS_AT_ONCE:
                groups[-1].append(number)
            else:
                groups.append([number])
        return groups

    def read_beginnings(self, spans: Sequence[Span]) -> list[Encoding]:
        """Representations of the first positions of each span, [1, n, d]; nothing was read before.

        Args:
            spans: those of one of `passes`; each starts at 0.
        """
        if len(spans) == 1:
            return [self._read_alone(spans[0])]

        # Padding is behind each text, where none of its positions looks. No state is kept, for it
        # would be behind the padding: a text that goes on is read again.
        longest = max(span.stop for span in spans)
        inputs = np.zeros((len(spans), longest), np.int64)
        for row, span in zip(inputs, spans, strict=True):
            row[: span.stop] = span.window.inputs(0, span.stop)
        places = np.broadcast_to(np.arange(longest), inputs.shape)
        encoding = self._encode(inputs, places, None)
        return [
            _row(encoding, number).positions(stop=span.stop) for number, span in enumerate(spans)
        ]

    def saved(self, window: TextWindow) -> TextWindow:
        """A copy of a window, from which it can be read again."""
        self._take_out(window)
        return copy(window)

    def forget(self, window: TextWindow, number: int) -> bool:
        """Forget the last inputs that a window has read; returns whether its state allows it."""
        if self._rows is None or number >= window.read - window.begin:
            return False
        shorter = self._rows.backbone.without_last(window.state, number)
        if shorter is None:
            return False
        window.state = shorter
        window.read -= number
        return True

    def leave(self, window: TextWindow) -> None:
        """Take out a text that is not read any more."""
        self._take_out(window)
        window.state = None

    def _take_out(self, window: TextWindow) -> None:
        """Give a text a state of its own, if it shares one."""
        if self._rows is not None:
            self._rows.take_out(window)

    def _read_at_once(self, span: Span) -> list[Window]:
        """The windows that a span is read in; a model that carries a state has one without end."""
        if self._model.config.carries_state:
            return windows(span.stop, WHOLE_STREAM, WHOLE_STREAM, span.start, span.stop)
        return self.windows(span.start, span.stop)

    def _fits(self, length: int) -> bool:
        """Whether a text of this length is read in one window, which has an end."""
        settings = self._reader.windows
        return not self._model.config.carries_state and length <= settings.context

    # One text

    def _read_alone(self, span: Span) -> Encoding:
        """Representations of a span, window after window."""
        self._take_out(span.window)
        parts = []
        for window in self._read_at_once(span):
            first = max(span.start, window.scored_from)
            stop = min(span.stop, window.stop)
            encoding = self._read_window(span.window, window.start, first, stop)
            # The encoding may begin earlier; the positions of the span are its last ones.
            parts.append(encoding.positions(start=first - stop))
        return _joined(parts)

    def _read_window(self, text: TextWindow, begin: int, first: int, stop: int) -> Encoding:
        """Encode inputs of a window before `stop`: those after what it has read, `first` included."""
        continues = self._continues and text.state is not None and text.begin == begin
        if not continues or text.read > first:
            # Read the window anew. An empty state asks a model to collect one.
            text.begin = begin
            text.read = begin
            text.state = {} if self._in_pieces else None

        inputs = text.inputs(text.read, stop)
        places = np.arange(text.read, stop)
        encoding = self._encode(inputs[None], places[None], text.state)
        text.read = stop
        text.state = encoding.state if self._continues else None
        return encoding

    # Several texts

    def _can_share(self, span: Span) -> bool:
        """Whether a span is the one next input of a window that can be read with others."""
        text = span.window
        if self._rows is None or span.stop != span.start + 1 or text.read != span.start:
            return False
        if text.read == text.begin or self._read_at_once(span)[0].start != text.begin:
            return False
        return self._rows.accepts(text)

    def _read_together(self, texts: Sequence[TextWindow]) -> dict[TextWindow, Encoding]:
        """Encode the next input of each text."""
        assert self._rows is not None
        self._rows.share(texts)
        texts = self._rows.texts
        places = np.array([[text.read] for text in texts])
        inputs = np.stack([text.inputs(text.read, text.read + 1) for text in texts])
        encoding = self._encode(inputs, places, self._rows.state)
        self._rows.state = encoding.state
        for text in texts:
            text.read += 1
        return {text: _row(encoding, number) for number, text in enumerate(texts)}

    # The model

    def _encode(self, inputs: np.ndarray, places: np.ndarray, state: State) -> Encoding:
        """Encode inputs, int64 [B, n], at these places of their texts, int64 [B, n]."""
        device = self._reader.device
        offsets: Tensor | None = None
        if self._model.config.reads.documents:
            # A text is one document, so places are offsets in it.
            offsets = torch.from_numpy(places).to(device)
        with torch.no_grad(), autocast(device, self._reader.precision):
            return self._model.encode(torch.from_numpy(inputs).to(device), state, offsets)


class SharedRows:
    """The state of texts that are read together, a row for each."""

    def __init__(self, backbone: JoinsRows) -> None:
        self.backbone = backbone
        self.state: State = None
        self.texts: list[TextWindow] = []

    def accepts(self, text: TextWindow) -> bool:
        """Whether a text shares the state, or can."""
        if text in self.texts:
            return True
        return text.state is not None and self.backbone.can_join(text.state)

    def take_out(self, text: TextWindow) -> None:
        """Give a text a state of its own, if it shares this one."""
        if text in self.texts:
            self.share([other for other in self.texts if other is not text])

    def share(self, texts: Sequence[TextWindow]) -> None:
        """Make these texts, and no others, the rows of the state."""
        staying = [row for row, text in enumerate(self.texts) if text in texts]
        new = [text for text in texts if text not in self.texts]
        # Nothing is copied while the texts are the same.
        if not new and len(staying) == len(self.texts):
            return

        for row, text in enumerate(self.texts):
            if row not in staying:
                text.state = self.backbone.rows(self.state, [row])

        # Rows that stay come first, in their order.
        states = [self.backbone.rows(self.state, staying)] if staying else []
        for text in new:
            states.append(text.state)
            text.state = None
        self.state = self.backbone.join(states) if states else None
        self.texts = [self.texts[row] for row in staying] + new


def _row(encoding: Encoding, number: int) -> Encoding:
    """One text of an encoding."""
    return encoding.select(lambda values: values[number : number + 1])


def _joined(parts: Sequence[Encoding]) -> Encoding:
    """Consecutive positions of one text together."""
    if len(parts) == 1:
        return parts[0]
    hidden = torch.cat([part.hidden for part in parts], 1)
    ffn_inputs = [part.ffn_input for part in parts if part.ffn_input is not None]
    return Encoding(hidden, torch.cat(ffn_inputs, 1) if ffn_inputs else None)
