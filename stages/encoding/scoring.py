"""What a language model alone says about a range of tokens, and the keys that memory is searched with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.diagnostics.gate.analysis import GateScores
from stages.diagnostics.gate.gating import Gating
from stages.encoding.encode import EncodedBlock
from stages.models.language_model import LanguageModel, State


@dataclass(frozen=True)
class LMScores:
    """Tokens [start, start + n) in order: `targets` int64, `log_p` of each and `log_z` float32, all [n], in nats.

    `keys` [n, d] by name, float32, as many as were asked for; `context_keys` by name, of each window
    that scores the tokens, are what it read before its first token here, [c, d]. `hidden` [r, d], what
    the softmax reads, is kept of the rows that were asked for. `state`: what the backbone carries on.
    Of a model with a gate, `gate` is what it did there, if that was asked for; keys are as before it.
    """

    start: int
    targets: Tensor
    log_p: Tensor
    log_z: Tensor
    keys: Mapping[str, Tensor]
    context_keys: Mapping[str, Sequence[Tensor]]
    hidden: Tensor | None
    state: State
    gate: GateScores | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def stop(self) -> int:
        return self.start + len(self)


def score_blocks(
    model: LanguageModel,
    blocks: Iterable[EncodedBlock],
    keys: Iterable[str] = (),
    context_keys: Iterable[str] = (),
    hidden_rows: Tensor | None = None,
    gating: Gating | None = None,
) -> LMScores:
    """Score encoded tokens with the model that encoded them.

    Args:
        keys: representations to keep of the tokens (`hidden`, `ffn-input`).
        context_keys: those to keep of what stands before them in their windows too.
        hidden_rows: bool [n], tokens whose hidden state is kept; None: none.
        gating: lets the tokens' neighbours in, of a model with a gate; None: they are not read.
    """
    scores, hidden = [], []
    kept: dict[str, list[Tensor]] = {name: [] for name in keys}
    before: dict[str, list[Tensor]] = {name: [] for name in context_keys}
    start, done, state = None, 0, None
    for block in blocks:
        start = block.start if start is None else start
        read = block.hidden
        if gating is not None:
            read = gating.let_in(model, read, block.targets, block.start)
        scores.append((block.targets, *model.log_prob(read, block.targets)))
        for name, parts in kept.items():
            parts.append(block.key(name).float())
        for name, contexts in before.items():
            contexts += [part.float().clone() for part in block.context_keys(name)]
        if hidden_rows is not None:
            hidden.append(read[hidden_rows[done : done + len(read)]])
        done, state = done + len(read), block.state
    assert start is not None, "a range without tokens cannot be scored"
    targets, log_p, log_z = (torch.cat(parts) for parts in zip(*scores, strict=True))
    return LMScores(
        start=start,
        targets=targets,
        log_p=log_p,
        log_z=log_z,
        keys={name: torch.cat(parts) for name, parts in kept.items()},
        context_keys=before,
        hidden=torch.cat(hidden) if hidden else None,
        state=state,
        gate=None if gating is None else gating.scores(targets, log_p),
    )


def search_keys(keys: Tensor, dtype: str) -> np.ndarray:
    """Keys as a search takes them: rounded to the dtype they are stored in, then float32, [n, d]."""
    return keys.to(getattr(torch, dtype)).float().cpu().numpy()
