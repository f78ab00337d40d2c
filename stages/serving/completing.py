"""A completion as work for the model: prompts are scored and continued, and pieces of text come out.

Everything here runs in the worker's thread, and stops at any of its steps.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from stages.generation.sampling import draw, probabilities
from stages.generation.session import Text
from stages.inspection.inspect import Inspected
from stages.serving.engine import (
    Engine,
    NextTokens,
    Prompt,
    ScoredToken,
    Scores,
    drawn_token,
)
from stages.serving.stops import GrowingText
from stages.serving.worker import Ask
from stages.text.excerpt import TextStream

Finish = Literal["stop", "length"]
LEAST = -9999.0
"""Log-probability of what is impossible: JSON has no infinity."""
REMEMBERED = 8
"""Last tokens of a prompt that may change the text of the first token after it."""


class TextToken(NamedTuple):
    """A token of a choice's text.

    `offset`: characters of the choice's text before it. `log_p`: log-probability in nats; None for
    the first token of a prompt, which nothing predicts. `top`: log-probabilities of the likeliest
    tokens and of this one, in falling order.
    """

    label: str
    offset: int
    log_p: float | None
    top: Mapping[str, float] | None


class Piece(NamedTuple):
    """A part of a choice: its text and the tokens that it completes."""

    choice: int
    text: str = ""
    tokens: Sequence[TextToken] = ()
    finish: Finish | None = None
    prompt_tokens: int = 0
    """Tokens of the prompt, in the first piece of a choice."""
    new_tokens: int = 0
    """Tokens that were written for this piece."""
    inspected: Inspected | None = None
    """All tokens with their sources, in the last piece if they were asked for."""
    inspected_tokens: int = 0
    """Number of the last tokens among them that belong to the choice's text."""


class Sampling(NamedTuple):
    """How tokens are drawn; see `stages.generation.GenerationRequest`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Order:
    """The work that a request asks for.

    `prompts`: ids of each, at most `Engine.context`. `top`: likeliest tokens listed for each token;
    None: tokens are not listed. `attribution`: passages listed for each token; 0: none.
    """

    prompts: Sequence[Sequence[int]]
    memory: str
    sampling: Sampling
    max_tokens: int = 16
    stops: Sequence[str] = ()
    top: int | None = None
    echo: bool = False
    attribution: int = 0
    ends: frozenset[int] = frozenset()
    """Tokens that end a text, and are left out of it."""


def completions(engine: Engine, order: Order) -> list[Generator[Any, Any, None]]:
    """The work of each choice, as strands of a task: they yield pieces, and ask `answer_for`."""
    return [
        Choice(engine, order, number, prompt).pieces()
        for number, prompt in enumerate(order.prompts)
    ]


class Choice:
    """The completion of one prompt."""

    def __init__(self, engine: Engine, order: Order, number: int, prompt: Sequence[int]) -> None:
        self._engine = engine
        self._order = order
        self._number = number
        self._prompt = prompt
        self._echoed = 0
        self._written = 0

    def pieces(self) -> Generator[Any, Any, None]:
        """Yield the pieces of the choice, and questions for scores and next tokens."""
        yield Piece(self._number, prompt_tokens=len(self._prompt))
        finish: Finish = "length"
        with self._engine.reading(self._order.memory, self._prompt) as text:
            if self._order.echo:
                yield (yield from self._echo(text))
            if self._order.max_tokens:
                finish = yield from self._write(text)
            yield self._end(text, finish)

    def _echo(self, text: Text) -> Generator[Any, Any, Piece]:
        """Ask for scores if tokens are listed; returns the prompt as text, with these scores."""
        engine = self._engine
        order = self._order
        parts = engine.text.pieces(self._prompt)
        scores: Sequence[ScoredToken | None] = [None] * len(parts)
        if order.top is not None:
            prompt = Prompt(text, self._prompt, goes_on=order.max_tokens > 0)
            scores = yield Ask(Scores(engine, order.memory, order.top), prompt)

        listed = list[TextToken]()
        for id, part, scored in zip(self._prompt, parts, scores, strict=True):
            listed.append(text_token(engine, self._echoed, id, scored))
            self._echoed += len(part)
        return self._piece("".join(parts), listed)

    def _write(self, text: Text) -> Generator[Any, Any, Finish]:
        """Write text until it ends; returns why it ended."""
        engine = self._engine
        order = self._order
        random = np.random.default_rng(order.sampling.seed)
        growing = _GrowingChoice(engine, self._prompt, order.stops, self._echoed)
        while self._written < order.max_tokens:
            draft = engine.draft(order.memory, text, order.max_tokens - self._written - 1)
            log_p = yield Ask(NextTokens(engine, order.memory), (text, draft))
            tokens = list[int]()
            ended = False
            for scored in drawn(log_p, draft, order, random):
                ended = scored.id in order.ends
                if ended:
                    break
                tokens.append(scored.id)
                growing.add(scored)
                # What is drawn behind the end is no part of the text.
                if growing.stopped:
                    break
            if tokens:
                engine.accept(order.memory, text, tokens)
            self._written += len(tokens)
            if ended:
                growing.end()
            yield self._piece(*growing.taken(), new_tokens=len(tokens) + ended)
            if ended or growing.stopped:
                return "stop"
        growing.end()
        yield self._piece(*growing.taken())
        return "stop" if growing.stopped else "length"

    def _piece(self, text: str, tokens: Sequence[TextToken], new_tokens: int = 0) -> Piece:
        listed = tokens if self._order.top is not None else ()
        return Piece(self._number, text, listed, new_tokens=new_tokens)

    def _end(self, text: Text, finish: Finish) -> Piece:
        """The last piece, with the sources of tokens if they are asked for."""
        order = self._order
        number = self._written
        inspected = None
        if order.attribution:
            inspected = self._engine.attribute(order.memory, text, order.attribution)
        if order.echo:
            number += len(self._prompt)
        return Piece(self._number, finish=finish, inspected=inspected, inspected_tokens=number)


def drawn(
    log_p: np.ndarray, draft: Sequence[int], order: Order, random: np.random.Generator
) -> Iterator[ScoredToken]:
    """Tokens that are drawn one after another, until one differs from the draft.

    Their log-probabilities are those before temperature, top-k and top-p.

    Args:
        log_p: log-probabilities of every token behind each token of the draft, [n, V].
        draft: the n - 1 tokens that were guessed.
    """
    temperature, top_k, top_p, _ = order.sampling
    for number, row in enumerate(log_p):
        token = draw(probabilities(row, temperature, top_k, top_p), random)
        yield drawn_token(row, token, order.top or 0)
        # Later rows were read behind a wrong guess.
        if number == len(draft) or token != draft[number]:
            return


def text_token(engine: Engine, offset: int, id: int, scored: ScoredToken | None) -> TextToken:
    """A token of a choice's text, from its id and its scores."""
    if scored is None:
        return TextToken(engine.label(id), offset, None, None)
    return TextToken(engine.label(id), offset, max(scored.log_p, LEAST), named_top(engine, scored))


def named_top(engine: Engine, scored: ScoredToken) -> dict[str, float]:
    """Log-probabilities of the likeliest tokens and of the scored one, by their texts.

    Where two tokens have the same text, the less likely one is called `token_id:N`.
    """
    names = {scored.id: engine.label(scored.id)}
    for id, _ in scored.top:
        label = engine.label(id)
        names.setdefault(id, f"token_id:{id}" if label in names.values() else label)
    numbers = {scored.id: scored.log_p, **dict(scored.top)}
    falling = sorted(numbers.items(), key=lambda pair: -pair[1])
    return {names[id]: max(log_p, LEAST) for id, log_p in falling}


class _GrowingChoice:
    """Text that is being written behind a prompt, with tokens that wait for their text."""

    def __init__(
        self, engine: Engine, prompt: Sequence[int], stops: Sequence[str], offset: int
    ) -> None:
        """`offset`: characters of the choice's text before what is written."""
        self._engine = engine
        self._offset = offset
        self._decoder = TextStream(engine.text)
        self._growing = GrowingText(stops)
        self._waiting: list[TextToken] = []
        self._parts: list[str] = []
        self._has_ended = False
        # A token's text may depend on the one before, as the space between words does.
        for id in prompt[-REMEMBERED:]:
            self._decoder.add(id)

    @property
    def stopped(self) -> bool:
        """Whether a string has ended the text."""
        return self._growing.stopped

    def add(self, scored: ScoredToken) -> None:
        """Add a token."""
        offset = self._offset + len(self._growing.text)
        self._waiting.append(text_token(self._engine, offset, scored.id, scored))
        self._parts.append(self._growing.add(self._decoder.add(scored.id)))

    def end(self) -> None:
        """Add the rest of the text."""
        self._parts.append(self._growing.add(self._decoder.end()))
        if not self.stopped:
            self._parts.append(self._growing.end())
            self._has_ended = True

    def taken(self) -> tuple[str, list[TextToken]]:
        """The text that is sure to stay, and the tokens that it holds, since the last call."""
        part = "".join(self._parts)
        self._parts = []
        settled = self._offset + self._growing.given
        # At the end, tokens without text are given out, too.
        complete = [token for token in self._waiting if self._has_ended or token.offset < settled]
        self._waiting = self._waiting[len(complete) :]
        return part, complete
