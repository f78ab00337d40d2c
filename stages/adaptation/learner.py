"""Reading of a range with weights that learn from each segment after it is scored."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log

import numpy as np
import torch
from torch import Tensor

from stages.adaptation.settings import Dynamic, Numbers
from stages.adaptation.update_rule import UpdateRule
from stages.encoding.encode import EncodedBlock, SplitReader, encode
from stages.errors import UsageError
from stages.examples.examples import Block
from stages.models.backbone import each
from stages.models.language_model import Encoding, LanguageModel, State

DIVERGED = 10
"""Loss of a segment, in units of a uniform guess, at which learning has diverged."""


@dataclass(frozen=True)
class Learner:
    """A rule with its numbers; the rule's weights are those of the moment."""

    rule: UpdateRule
    settings: Dynamic
    """Complete."""
    numbers: Numbers

    def at(self, numbers: Numbers) -> "Learner":
        """The same learner with other numbers."""
        return replace(self, numbers=numbers)

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
        scores it with the weights before.

        Args:
            state: state of the backbone before the range.
            learned: result of `learned` after the range before; None: nothing was learned yet.
        Raises: UsageError if the loss is no number, or far above a uniform guess.
        """
        model = self.rule.model
        if learned is None:
            self.rule.begin(self.numbers)
        else:
            self.rule.load(learned, self.numbers)
        for first, last in self._pieces(reader, split, start, stop):
            if first != start or self._begins_document(reader, split, first):
                self.rule.begin(self.numbers)
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
        return self.rule.state()

    def _learn(self, model: LanguageModel, block: EncodedBlock, split: str) -> None:
        """Update the weights by a block that was scored."""
        with torch.enable_grad():
            loss = model.loss(block.hidden, block.targets)
            gradients = torch.autograd.grad(loss, list(self.rule.learning), allow_unused=True)
        value = float(loss.detach())
        if not value <= DIVERGED * log(model.config.vocab_size or 2):
            raise DivergedError(
                f"--memory dynamic: with rate={self.numbers.rate:g} learning diverges at token "
                f"{block.start:,} of {split} (loss {value:.3g}): give a smaller rate, or a larger "
                "decay."
            )
        self.rule.update(gradients)

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
