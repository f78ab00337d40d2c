"""Reading of a range with weights that learn from each segment after it is scored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite, log

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
from stages.models.language_model import Encoding, LanguageModel, State


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
        numbers behind the segment that showed it.

        Args:
            state: state of the backbone before the range.
            learned: result of `learned` after the range before; None: nothing was learned yet.
        Raises: UsageError if learning diverges and there are no slower numbers, or if the loss is no
            number.
        """
        model = self.rule.model
        if learned is None:
            self.course = Course()
            self.rule.begin(self._pace)
        else:
            self.course = Course.of(learned)
            self.rule.load(learned, self._pace)
        for first, last in self._pieces(reader, split, start, stop):
            if first != start or self._begins_document(reader, split, first):
                self.rule.begin(self._pace)
            for block in self._blocks(reader, split, first, last):
                # One block at a time: the weights of the next are not known yet. cuDNN's LSTM has
                # no gradients without dropout's mode.
                with torch.backends.cudnn.flags(enabled=False):
                    (encoded,) = encode(model, [block], state, reader.precision, gradients=True)
                state = each(encoded.state, Tensor.detach)
                yield replace(encoded, encoding=_detached(encoded.encoding, state))
                self._learn(model, encoded, split)

    @property
    def learned(self) -> dict[str, Tensor]:
        """Copies of everything learned so far, by name."""
        return self.rule.state() | self.course.state()

    @property
    def _pace(self) -> Numbers:
        """The numbers of the moment."""
        return (self.numbers, *self.slower)[len(self.course.diverged_at)]

    def _learn(self, model: LanguageModel, block: EncodedBlock, split: str) -> None:
        """Update the weights by a block that was scored."""
        with torch.enable_grad():
            loss = model.loss(block.hidden, block.targets)
            gradients = torch.autograd.grad(loss, list(self.rule.learning), allow_unused=True)
        value = float(loss.detach())
        self.course.add(value, len(block.targets))
        if not self.course.diverges(log(model.config.vocab_size or 2)):
            self.rule.update(gradients)
            return

        slowest = len(self.course.diverged_at) == len(self.slower)
        # Of a loss that is no number there are no scores either: the run cannot go on.
        if slowest or not isfinite(value):
            raise DivergedError(
                f"--memory dynamic: with rate={self._pace.rate:g} learning diverges at token "
                f"{block.start:,} of {split} (loss {value:.3g}): give a smaller rate, or a larger "
                "decay."
            )
        self.course.begin_again(block.start)
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
            borders = documents[(documents > start) & (documents < stop)].tolist()
        yield from pairwise((start, *borders, stop))

    def _begins_document(self, reader: SplitReader, split: str, place: int) -> bool:
        """Whether everything learned is forgotten at a place."""
        return self.settings.scope == "document" and bool(
            np.isin(place, reader.documents(split)).item()
        )


class DivergedError(UsageError):
    """Learning that diverged."""


def _detached(encoding: Encoding, state: State) -> Encoding:
    """An encoding for scores and keys, without the graph that learning needs."""
    return replace(encoding.select(Tensor.detach), state=state, auxiliary_loss=None)
