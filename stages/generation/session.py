"""Texts that a model with its memories continues together, token by token.

    session = TextSession(open_writer(request, store))
    texts = [session.add(ids) for ids in prompts]  # ids: reader.text.prompt_ids("The ship was")
    scores = session.score(texts, top=5)           # log-probabilities of the prompts, if wanted
    log_p = session.step(texts)                    # [R, V]: of the next token of each text
    session.put(texts, tokens)                     # R tokens, however they were chosen
    session.drop(texts[0])

A step is one pass of the model and one search for all texts. What a text gets does not depend on
the others, up to rounding. Texts come and go between steps.

Shapes: R texts, n positions, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.encoding.scoring import LMScores
from stages.errors import UsageError
from stages.generation.mixing import (
    Distributions,
    EncodedPositions,
    MemoryMixer,
    mixes_together,
)
from stages.generation.prompt_scores import PromptScores, blocks
from stages.generation.stream import ANY, Stream
from stages.generation.windows import Span, TextWindow, WindowReader
from stages.inspection.reading import MemoryReader
from stages.inspection.request import Passage
from stages.models.backbone import Encoding

SCORED_AT_ONCE = 128
"""Positions of prompts whose distributions over the vocabulary are in memory together."""


class _OpenPositions(NamedTuple):
    """Positions that were read, and whose tokens are not set yet."""

    scored: LMScores
    before: TextWindow | None
    """The window before them; None: no draft was read, so none of them is dropped."""


@dataclass(eq=False)
class Text:
    """A text of a session; only the session changes it."""

    first: int | None
    """Its first token, which is not predicted; None: `<eos>` stands before the text."""
    passage: Passage
    """All tokens but the first, as readings see them."""
    window: TextWindow
    past: CarriedState
    """The positions before the next one, as far as readings need them."""
    stream: Stream | None = None
    """Reads a text whose memories cannot be mixed with those of others; None: the session does."""
    latest: _OpenPositions | None = None
    following: Encoding | None = None
    """The next position, [1, 1, d], where it was read with those before it."""

    @property
    def ids(self) -> list[int]:
        """All its tokens, those of the prompt included."""
        first = [] if self.first is None else [self.first]
        return first + [int(id) for id in self.passage.ids]


class TextSession:
    """Continues texts with a model and its memories."""

    def __init__(self, reader: MemoryReader) -> None:
        self.reader = reader
        self._range_reader = reader.range_reader
        self._windows = WindowReader(self._range_reader.model, self._range_reader.split_reader)
        self._mixer = MemoryMixer(reader) if mixes_together(reader) else None
        self.texts: list[Text] = []

    def add(self, ids: Sequence[int]) -> Text:
        """Add a text that begins with these tokens; it is read with the next step.

        With a pretrained tokenizer nothing is put before them, as in transformers: see
        `TokenText.prompt_ids`. Without any, the text begins behind the tokenizer's first token.
        A model that reads `bos` before every window reads it before these, too. Other models read
        `<eos>` before every text, as in training.

        Raises: UsageError for an id that the model does not know.
        """
        size = self._range_reader.model.config.vocab_size or 0
        unknown = next((id for id in ids if not 0 <= id < size), None)
        if unknown is not None:
            raise UsageError(f"A prompt has token {unknown}; the model knows 0 to {size - 1}.")
        first = self._first(ids)
        text = self._begin(first, ids if first is None else ids[1:])
        self.texts.append(text)
        return text

    def drop(self, text: Text) -> None:
        """Take a text out of the session."""
        self.texts.remove(text)
        self._windows.leave(text.window)

    def fork(self, text: Text) -> Text:
        """Add a copy of a text, which goes on from the same place by itself; nothing is read again.

        Only for texts that are read together with others.
        """
        assert text.stream is None, "a text that is read by itself has no copies"
        window = self._windows.saved(text.window)
        passage = Passage(text.passage.ids.tolist())
        before = self._range_reader.split_reader.corpus.eos if text.first is None else text.first
        copied = replace(window, inputs=partial(_inputs, passage, before))
        branch = replace(text, passage=passage, window=copied)
        self.texts.append(branch)
        return branch

    def step(self, texts: Sequence[Text] | None = None) -> Tensor:
        """Log-probabilities of the next token of each text, with all memories, float32 [R, V], in
        nats; `put` follows.

        Args:
            texts: those to continue, at least one; None: all of the session.
        """
        chosen = self.texts if texts is None else texts
        return torch.cat(
            [distribution.log_p for distribution in self.read([(text, ()) for text in chosen])]
        )

    def put(self, texts: Sequence[Text], tokens: Sequence[int]) -> None:
        """Set the next token of each text that `step` read."""
        for text, token in zip(texts, tokens, strict=True):
            self.accept(text, [int(token)])

    def read(self, texts: Sequence[tuple[Text, Sequence[int]]]) -> list[Distributions]:
        """Distributions at the next position of each text, and behind each token of its draft;
        `accept` follows.

        Args:
            texts: each with the n - 1 tokens of a draft, which may be empty.
        """
        if self._mixer is None:
            return [_of_stream(text, draft) for text, draft in texts]
        return self._mixer.mix(self._encoded(texts))

    def accept(self, text: Text, tokens: Sequence[int]) -> None:
        """Set the next tokens of a text: first ones of the draft that was read, then one more."""
        if text.stream is not None:
            text.stream.put(tokens[-1], len(tokens) - 1)
            return
        assert text.latest is not None, "a position is read before its token is set"
        scored, before = text.latest
        text.latest = None
        text.passage.cut(scored.start)
        for token in tokens:
            text.passage.append(token)
        wrong = len(scored) - len(tokens)
        if wrong and not self._windows.forget(text.window, wrong):
            assert before is not None, "a window is saved before it reads a draft"
            text.window = before
        self._remember(text, scored, tokens)

    def score(
        self, texts: Sequence[Text], top: int = 0, goes_on: bool = False
    ) -> list[PromptScores]:
        """Log-probabilities of the tokens of texts that were added, and not read yet.

        Texts of like length share passes of the model, and searches.

        Args:
            top: number of the most probable tokens to list at each place.
            goes_on: the texts are continued, so the position behind each is read with them.
        """
        prompts = {text: text.passage.ids.tolist() for text in texts}
        parts = {text: [] if text.first is None else [PromptScores.unknown(top)] for text in texts}
        scored = [text for text in texts if prompts[text]]
        for text in scored:
            text.passage.cut(0)
            text.past = CarriedState()

        if self._mixer is None:
            for text in scored:
                parts[text] += self._scored_by_itself(text, prompts[text], top)
        else:
            lengths = [len(prompts[text]) + goes_on for text in scored]
            for numbers in self._windows.passes(lengths):
                together = {scored[number]: prompts[scored[number]] for number in numbers}
                for text, scores in self._scored_together(together, top, goes_on):
                    parts[text].append(scores)
        return [PromptScores.joined(parts[text], top) for text in texts]

    # Private

    def _first(self, ids: Sequence[int]) -> int | None:
        """The first token of a text, if nothing is read before it."""
        start = self.reader.text.start
        prefix = self._range_reader.model.backbone.prefix
        if start is None:
            return None
        if not ids:
            return start
        return None if prefix not in (None, ids[0]) else ids[0]

    def _begin(self, first: int | None, ids: Sequence[int]) -> Text:
        """A text of which nothing was read."""
        passage = Passage(ids)
        before = self._range_reader.split_reader.corpus.eos if first is None else first
        past = CarriedState(max(0, len(ids) - self._range_reader.needs.reach))
        text = Text(first, passage, TextWindow(partial(_inputs, passage, before)), past)
        if self._mixer is None:
            text.stream = Stream(self.reader, passage, first)
        return text

    def _encoded(self, texts: Sequence[tuple[Text, Sequence[int]]]) -> list[EncodedPositions]:
        """The next position of each text and those of its draft; positions before are remembered."""
        spans = []
        before = []
        for text, draft in texts:
            assert text.latest is None, "the token of a position is set before the next is read"
            before.append(self._windows.saved(text.window) if draft else None)
            stop = len(text.passage) + 1 + len(draft)
            for token in draft:
                text.passage.append(token)
            if text.following is None:
                spans.append(Span(text.window, text.past.start, stop))

        read = iter(self._windows.read(spans))
        encoded = []
        for (text, draft), window in zip(texts, before, strict=True):
            encoding = text.following or next(read)
            text.following = None
            encoded.append(self._next_positions(text, draft, encoding, window))
        return encoded

    def _next_positions(
        self, text: Text, draft: Sequence[int], encoding: Encoding, before: TextWindow | None
    ) -> EncodedPositions:
        """The last positions of an encoding, whose tokens are open; the others become the past."""
        place = len(text.passage) - len(draft)
        number = place - text.past.start
        if number:
            earlier = encoding.positions(stop=number)
            self._remember_as(text, earlier, text.passage.ids[text.past.start : place].tolist())
        of_text = encoding.positions(start=number)
        positions = self._positions(text, place, of_text, [*draft, ANY])
        assert self._mixer is not None
        text.latest = _OpenPositions(
            self._mixer.unscored(place, of_text, positions.targets), before
        )
        return positions

    def _positions(
        self, text: Text, start: int, encoding: Encoding, targets: Sequence[int]
    ) -> EncodedPositions:
        stop = start + len(targets)
        return EncodedPositions(
            start=start,
            encoding=encoding,
            inputs=text.window.inputs(start, stop),
            targets=targets,
            past=text.past,
            windows=self._windows.windows(start, stop),
        )

    def _scored_by_itself(self, text: Text, ids: Sequence[int], top: int) -> list[PromptScores]:
        """Scores of all tokens of a text whose memories cannot be mixed with those of others."""
        text.stream = Stream(self.reader, text.passage, text.first)
        starts = range(0, len(ids), SCORED_AT_ONCE)
        return [
            _scored_by_stream(text, ids[start : start + SCORED_AT_ONCE], top) for start in starts
        ]

    def _scored_together(
        self, prompts: Mapping[Text, Sequence[int]], top: int, goes_on: bool
    ) -> Iterator[tuple[Text, PromptScores]]:
        """Scores of the tokens of texts whose passages are empty, part by part of each text.

        Args:
            prompts: the tokens of each text, read in one pass.
        """
        assert self._mixer is not None
        spans = []
        for text, ids in prompts.items():
            for token in ids:
                text.passage.append(token)
            spans.append(Span(text.window, 0, len(ids) + goes_on))
        encodings = self._windows.read_beginnings(spans)

        texts = list(prompts)
        lengths = [len(ids) for ids in prompts.values()]
        for block in blocks(lengths, SCORED_AT_ONCE):
            positions = []
            for number, start, stop in block:
                encoding = encodings[number].positions(start, stop)
                targets = prompts[texts[number]][start:stop]
                positions.append(self._positions(texts[number], start, encoding, targets))
            mixed = self._mixer.mix(positions)
            for part, own, distributions in zip(block, positions, mixed, strict=True):
                text = texts[part.number]
                yield text, PromptScores.of(distributions.log_p, own.targets, top)
                self._remember_as(text, own.encoding, own.targets)

        if goes_on:
            for text, encoding in zip(texts, encodings, strict=True):
                text.following = encoding.positions(start=-1)

    def _remember_as(self, text: Text, encoding: Encoding, tokens: Sequence[int]) -> None:
        """Make encoded positions with known tokens part of the past."""
        assert self._mixer is not None
        self._remember(text, self._mixer.unscored(text.past.start, encoding, tokens), tokens)

    def _remember(self, text: Text, scored: LMScores, tokens: Sequence[int]) -> None:
        """Make the first of some positions part of the past, now that their tokens are known."""
        needs = self._range_reader.needs
        text.past = text.past.after(scored.with_targets(tokens), needs.reach, needs.keys)


def _inputs(passage: Passage, before: int, start: int, stop: int) -> np.ndarray:
    """Inputs [start, stop) of a text, int64: the token before the passage, then those of it."""
    ids = passage.ids[max(0, start - 1) : stop - 1]
    return ids if start else np.concatenate(([before], ids))


def _scored_by_stream(text: Text, tokens: Sequence[int], top: int) -> PromptScores:
    """Scores of the next tokens of a text that is read by itself."""
    distributions = _of_stream(text, tokens[:-1])
    assert text.stream is not None
    text.stream.put(tokens[-1], len(tokens) - 1)
    return PromptScores.of(distributions.log_p, tokens, top)


def _of_stream(text: Text, draft: Sequence[int]) -> Distributions:
    """The distributions of a text that is read by itself."""
    assert text.stream is not None
    scored_range = text.stream.read_range(draft)
    return Distributions(text.stream.log_probs(scored_range), scored_range)
