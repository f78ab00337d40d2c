"""A completion as work for the model: prompts are scored and continued, and pieces of text come out.

Everything here runs in the worker's thread, and stops at any of its steps.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from stages.inspection.inspect import Inspected
from stages.serving.engine import Engine, Sampling, ScoredToken
from stages.serving.stops import GrowingText
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
    inspected_from: int = 0
    """The first token of the choice's text among them."""


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


def complete(engine: Engine, order: Order) -> Iterator[Piece | None]:
    """Complete the prompts one after another; None marks a step without a piece."""
    for index, prompt in enumerate(order.prompts):
        yield from _Choice(engine, order, index, prompt).pieces()


class _Choice:
    """The completion of one prompt."""

    def __init__(self, engine: Engine, order: Order, index: int, prompt: Sequence[int]) -> None:
        self._engine, self._order, self._index = engine, order, index
        self._prompt = prompt
        self._ids = list(engine.behind_start(prompt))
        self._echoed = 0
        self._written: list[int] = []

    def pieces(self) -> Iterator[Piece | None]:
        yield Piece(self._index, prompt_tokens=len(self._prompt))
        if self._order.echo:
            yield from self._echo()
        finish: Finish = "length"
        if self._order.max_tokens:
            finish = yield from self._write()
        first = 0 if self._order.echo else len(self._ids)
        yield Piece(self._index, finish=finish, inspected=self._inspected(), inspected_from=first)

    def _echo(self) -> Iterator[Piece | None]:
        """The prompt as text; with scores of its tokens if tokens are listed."""
        engine, listed = self._engine, list[TextToken]()
        scores = yield from self._prompt_scores()
        parts = engine.text.pieces(self._prompt)
        for id, part, scored in zip(self._prompt, parts, scores, strict=True):
            listed.append(text_token(engine, self._echoed, id, scored))
            self._echoed += len(part)
        yield self._piece("".join(parts), listed)

    def _prompt_scores(self) -> Generator[None, None, list[ScoredToken | None]]:
        """A score for each token of the prompt but the first; none where tokens are not listed."""
        top, scores = self._order.top, list[ScoredToken]()
        if top is None:
            return [None] * len(self._prompt)
        for block in self._engine.score(self._order.memory, self._ids, top):
            scores += block
            yield None
        # Scores begin with the first token, or with the second if the first is the start of a text.
        return [None, *scores[len(scores) - len(self._prompt) + 1 :]] if self._prompt else []

    def _write(self) -> Generator[Piece | None, None, Finish]:
        """Write text until it ends; returns why it ended."""
        order = self._order
        draft = _Draft(self._engine, self._prompt, order.stops, self._echoed)
        tokens = self._engine.write(order.memory, self._ids, order.sampling, order.top or 0)
        for scored in islice(tokens, order.max_tokens):
            if scored.id in order.ends:
                yield self._piece(*draft.end(), new_tokens=1)
                return "stop"
            self._written.append(scored.id)
            yield self._piece(*draft.add(scored), new_tokens=1)
            if draft.stopped:
                return "stop"
        yield self._piece(*draft.end())
        return "stop" if draft.stopped else "length"

    def _piece(self, text: str, tokens: Sequence[TextToken], new_tokens: int = 0) -> Piece:
        listed = tokens if self._order.top is not None else ()
        return Piece(self._index, text, listed, new_tokens=new_tokens)

    def _inspected(self) -> Inspected | None:
        """Sources of the tokens, if they are asked for."""
        ids = [*self._ids, *self._written]
        if not self._order.attribution or not ids:
            return None
        return self._engine.attribute(self._order.memory, ids, self._order.attribution)


class _Draft:
    """Text that is being written behind a prompt, with tokens that wait for their text."""

    def __init__(
        self, engine: Engine, prompt: Sequence[int], stops: Sequence[str], offset: int
    ) -> None:
        """`offset`: characters of the choice's text before what is written."""
        self._engine, self._offset = engine, offset
        self._decoder, self._growing = TextStream(engine.text), GrowingText(stops)
        self._waiting: list[TextToken] = []
        # A token's text may depend on the one before, as the space between words does.
        for id in prompt[-REMEMBERED:]:
            self._decoder.add(id)

    @property
    def stopped(self) -> bool:
        """Whether a string has ended the text."""
        return self._growing.stopped

    def add(self, scored: ScoredToken) -> tuple[str, list[TextToken]]:
        """Add a token; returns the text that is sure to stay, and the tokens that it holds."""
        offset = self._offset + len(self._growing.text)
        self._waiting.append(text_token(self._engine, offset, scored.id, scored))
        part = self._growing.add(self._decoder.add(scored.id))
        return part, self._complete()

    def end(self) -> tuple[str, list[TextToken]]:
        """The rest of the text, and of its tokens."""
        part = self._growing.add(self._decoder.end())
        if not self.stopped:
            part += self._growing.end()
            tokens, self._waiting = self._waiting, []
            return part, tokens
        return part, self._complete()

    def _complete(self) -> list[TextToken]:
        """The tokens whose text has begun to be given out."""
        given = self._offset + self._growing.given
        complete = [token for token in self._waiting if token.offset < given]
        self._waiting = self._waiting[len(complete) :]
        return complete
