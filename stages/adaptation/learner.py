"""Reading of a range with weights that learn from each segment after it is scored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isnan, log
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.adaptation.course import Course
from stages.adaptation.settings import Dynamic, Numbers
from stages.adaptation.update_rule import UpdateRule
from stages.encoding.encode import EncodedBlock, SplitReader, encode
from stages.errors import UsageError
from stages.examples.examples import Block
from stages.models.backbone import each
from stages.models.language_model import Encoding, State


@dataclass
class Learner:
    """A rule with its numbers; the rule's weights, and the course, are those of the moment."""

    rule: UpdateRule
    settings: Dynamic
    """Complete."""
    numbers: Numbers
    slower: Sequence[Numbers] = ()
    """Numbers to go on with where learning diverges, one after the other."""
    course: Course = field(default_factory=Course, init=False)

    def at(self, numbers: Numbers, slower: Sequence[Numbers] = ()) -> "Learner":
        """The same learner with other numbers."""
        return replace(self, numbers=numbers, slower=slower)

    def encode(
        self,
        reader: SplitReader,
        split: str,
        start: int,
        stop: int,
        state: State,
        learned: Mapping[str, Tensor] | None,
    ) -> Iterator[EncodedBlock]:
        """Encode tokens [start, stop) of a split, segment by segment.

        The model learns from a segment when the next one is asked for. So whoever scores a block
        scores it with the weights before. Where learning diverges, it begins anew with slower
        numbers behind the segment that showed it. Where the weights give no distribution any more,
        it begins anew before that segment.

        Args:
            state: state of the backbone before the range.
            learned: result of `learned` after the range before; None: nothing was learned yet.
        Raises: UsageError if learning diverges and there are no slower numbers.
        """
        if learned is None:
            self.course = Course()
            self.rule.begin(self._pace)
        else:
            self.course = Course.of(learned)
            self.rule.load(learned, self._pace)

        for first, last in self._pieces(reader, split, start, stop):
            # A piece that does not continue the range before begins with the weights of training.
            if first != start or self._begins_document(reader, split, first):
                self.rule.begin(self._pace)
            for block in self._blocks(reader, split, first, last):
                scored = self._score(block, state, reader.precision)
                if isnan(scored.value) and self._pace.rate:
                    # NaN stands for every token alike, so the targets did not decide this.
                    self._begin_slower(scored, split)
                    scored = self._score(block, state, reader.precision)
                state = each(scored.encoded.state, Tensor.detach)
                encoding = _detached(scored.encoded.encoding, state)
                yield replace(scored.encoded, encoding=encoding)
                self._learn(scored, split)

    @property
    def learned(self) -> dict[str, Tensor]:
        """Copies of everything learned so far, by name."""
        return self.rule.state() | self.course.state()

    @property
    def _pace(self) -> Numbers:
        """The numbers of the moment."""
        return (self.numbers, *self.slower)[len(self.course.diverged_at)]

    def _score(self, block: Block, state: State, precision: str) -> "_ScoredBlock":
        """Score one block: the weights of the next are not known yet."""
        model = self.rule.model
        # cuDNN's LSTM has no gradients without dropout's mode.
        with torch.backends.cudnn.flags(enabled=False):
            (encoded,) = encode(model, [block], state, precision, gradients=True)
        with torch.enable_grad():
            loss = model.loss(encoded.hidden, encoded.targets)
        return _ScoredBlock(encoded, loss)

    def _learn(self, scored: "_ScoredBlock", split: str) -> None:
        """Update the weights by a block that was scored."""
        if not self._pace.rate:
            return
        self.course.add(scored.value, len(scored.encoded.targets))
        uniform_loss = log(self.rule.model.config.vocab_size or 2)
        if self.course.diverges(uniform_loss):
            self._begin_slower(scored, split)
            return
        gradients = torch.autograd.grad(scored.loss, list(self.rule.learning), allow_unused=True)
        self.rule.update(gradients)

    def _begin_slower(self, scored: "_ScoredBlock", split: str) -> None:
        """Put the weights back to those of training, which learn on with the next slower numbers.

        Raises: DivergedError if there are none.
        """
        place = scored.encoded.start
        if len(self.course.diverged_at) == len(self.slower):
            raise DivergedError(
                f"--memory dynamic: with rate={self._pace.rate:g} learning diverges at token "
                f"{place:,} of {split} (loss {scored.value:.3g}): give a smaller rate, or a "
                "larger decay."
            )
        self.course.begin_again(place)
        self.rule.begin(self._pace)

    def _blocks(self, reader: SplitReader, split: str, start: int, stop: int) -> Iterator[Block]:
        """Blocks of one segment, or of one window."""
        model = self.rule.model
        tokens = self.settings.segment
        assert tokens is not None, "complete settings have a segment"
        if not model.config.carries_state:
            tokens = reader.windows.context
        return reader.blocks(model, split, start, stop, batch_tokens=tokens)

    def _pieces(
        self, reader: SplitReader, split: str, start: int, stop: int
    ) -> Iterator[tuple[int, int]]:
        """Consecutive parts of a range after which everything learned is forgotten."""
        borders: list[int] = []
        if self.settings.scope == "document":
            documents = reader.documents(split)
            is_within = (documents > start) & (documents < stop)
            borders = documents[is_within].tolist()
        yield from pairwise((start, *borders, stop))

    def _begins_document(self, reader: SplitReader, split: str, place: int) -> bool:
        """Whether everything learned is forgotten at a place."""
        return self.settings.scope == "document" and bool(
            np.isin(place, reader.documents(split)).item()
        )


class _ScoredBlock(NamedTuple):
    """A block, and its mean loss in nats with the graph of both."""

    encoded: EncodedBlock
    loss: Tensor

    @property
    def value(self) -> float:
        """The loss without its graph."""
        return float(self.loss.detach())


class DivergedError(UsageError):
    """Learning that diverged."""


def _detached(encoding: Encoding, state: State) -> Encoding:
    """An encoding for scores and keys, without the graph that learning needs."""
    return replace(encoding.select(Tensor.detach), state=state, auxiliary_loss=None)
