"""Representations of a range of a split's tokens: datastores, queries and scores start here."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stages.examples.examples import Block
from stages.examples.windows import Window
from stages.models.devices import autocast
from stages.models.language_model import Encoding, State


@dataclass
class EncodedBlock:
    """The contexts of tokens [start, stop), n of them: row r predicts token start + r.

    `encoding` holds representations of the inputs of `windows`, [B, L, d]. A model that pools gives one for each
    window, [B, 1, d]. `targets` int64 [n] are the tokens. All are on the model's device.
    """

    start: int
    stop: int
    targets: Tensor
    windows: list[Window]
    encoding: Encoding

    @property
    def hidden(self) -> Tensor:
        return self.key("hidden")

    @property
    def state(self) -> State:
        """State that the backbone carries past the block; None: nothing."""
        return self.encoding.state

    def key(self, name: str) -> Tensor:
        """The representation that memory is searched with, `hidden` or `ffn-input`, [n, d]."""
        return self.of_tokens(self.encoding.key(name))

    def of_tokens(self, positions: Tensor) -> Tensor:
        """Select from values of the windows' inputs, [B, L, …], those that predict the tokens, [n, …]."""
        return torch.cat([rows[self._scored(w)] for w, rows in zip(self.windows, positions, strict=True)])

    def context_keys(self, name: str) -> list[Tensor]:
        """Representations of each window's inputs before the first token that it scores here, [c, d]."""
        return [rows[: self._scored(w).start] for w, rows in zip(self.windows, self.encoding.key(name), strict=True)]

    def _scored(self, window: Window) -> slice:
        first, last = max(self.start, window.scored_from), min(self.stop, window.stop)
        # A row begins with its window's first input: padding, if there is any, comes last and is cut off here.
        return slice(first - window.start, last - window.start)


def encode(
    model: Any, blocks: Iterable[Block], state: State = None, precision: str = "fp32", gradients: bool = False
) -> Iterator[EncodedBlock]:
    """Encode blocks that follow each other, each when it is asked for.

    Args:
        model: a LanguageModel.
        blocks: of `Examples.blocks`, cut as the model wants them (`model.config.cutting`).
        state: what the backbone carries past the token before the first block; None: it begins anew there.
        precision: `fp32` or `bf16`.
        gradients: whether gradients flow into the model, as adaptation at test wants them.
    """
    device = next(model.parameters()).device
    for block in blocks:
        batch = block.batch.to(device)
        with torch.set_grad_enabled(gradients), autocast(device, precision):
            encoding = model.read(batch, state if block.continues else None)
        state = encoding.state
        yield EncodedBlock(block.start, block.stop, batch.targets, block.windows, encoding)
