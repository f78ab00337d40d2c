"""Scores a range of tokens by the language model alone, and makes the keys that memory is searched with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.encoding.encode import EncodedBlock, HiddenReader, encode
from stages.encoding.probe import RangeProbe, ScoredBlock
from stages.examples.cutting import WindowSettings
from stages.examples.streams import Streams
from stages.models.language_model import LanguageModel, State

DENSE_SCORES = 1 << 24
"""Probabilities of whole vocabularies that are in memory together."""
LEAST = -1e4
"""A substitute for log 0, which is infinite: 0 times that would be no number."""


@dataclass(frozen=True)
class LMScores:
    """Tokens [start, start + n) in order: `targets` int64, `log_p` of each and `log_z` float32, all [n], in nats.

    `keys` [n, d], float32, are the requested ones by name. `context_keys` [c, d] by name are a list, one item for each
    window that scores the tokens: its keys before its first token here. `hidden` [r, d], which the softmax reads, is
    kept of the requested rows. `state` is carried on by the backbone. `certainty` [n, 2] is that of `certainty_of`,
    if it was requested. Keys are as before a hidden memory enters.
    """

    start: int
    targets: Tensor
    log_p: Tensor
    log_z: Tensor
    keys: Mapping[str, Tensor]
    context_keys: Mapping[str, Sequence[Tensor]]
    hidden: Tensor | None
    state: State
    certainty: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def stop(self) -> int:
        return self.start + len(self)


def score_ids(
    model: LanguageModel, ids: Sequence[int], eos: int, context: int, keys: Iterable[str] = ("hidden",)
) -> LMScores:
    """Score one stream of tokens in windows, as an evaluation reads a split, on the model's device.

    A model that reads a source beside its tokens cannot be asked here.

    Args:
        ids: of its tokens.
        eos: the token that stands before the first.
        context: inputs of a window or segment.
        keys: representations to keep of the tokens, `hidden` or `ffn-input`.
    """
    windows = WindowSettings(context, 1 if model.config.pools else context)
    texts = Streams(np.asarray(ids), eos, model.config.cutting(windows), np.array([0, len(ids)]))
    return score_blocks(model, encode(model.eval(), texts.blocks(0, len(ids))), keys)


def score_blocks(
    model: LanguageModel,
    blocks: Iterable[EncodedBlock],
    keys: Iterable[str] = (),
    context_keys: Iterable[str] = (),
    hidden_rows: Tensor | None = None,
    reader: HiddenReader | None = None,
    probes: Sequence[RangeProbe] = (),
    certainty: bool = False,
) -> LMScores:
    """Score encoded tokens with the model that encoded them.

    Args:
        keys: representations to keep of the tokens (`hidden`, `ffn-input`).
        context_keys: those to keep of what stands before them in their windows too.
        hidden_rows: bool [n], tokens whose hidden state is kept; None: none.
        reader: lets memory into the hidden states; None: they are scored as they are.
        probes: watch the range.
        certainty: whether distributions of all tokens are looked at.
    """
    scores, hidden, sure = [], [], list[Tensor]()
    kept: dict[str, list[Tensor]] = {name: [] for name in keys}
    before: dict[str, list[Tensor]] = {name: [] for name in context_keys}
    start, done, state = None, 0, None
    for block in blocks:
        start = block.start if start is None else start
        read = block.hidden if reader is None else reader.apply(model, block)
        log_p, log_z = model.log_prob(read, block.targets)
        scores.append((block.targets, log_p, log_z))
        for probe in probes:
            probe.observe(ScoredBlock(model, block, read, log_p))
        for name, parts in kept.items():
            parts.append(block.key(name).float())
        for name, contexts in before.items():
            # A copy, for a view would keep the block's whole encoding.
            contexts += [part.float().clone() for part in block.context_keys(name)]
        if hidden_rows is not None:
            hidden.append(read[hidden_rows[done : done + len(read)]])
        if certainty:
            sure.append(certainty_of(model, read))
        done, state = done + len(read), block.state
    assert start is not None, "a range without tokens cannot be scored"
    targets, log_ps, log_zs = (torch.cat(parts) for parts in zip(*scores, strict=True))
    return LMScores(
        start=start,
        targets=targets,
        log_p=log_ps,
        log_z=log_zs,
        keys={name: torch.cat(parts) for name, parts in kept.items()},
        context_keys=before,
        hidden=torch.cat(hidden) if hidden else None,
        state=state,
        certainty=torch.cat(sure) if sure else None,
    )


def certainty_of(model: LanguageModel, hidden: Tensor) -> Tensor:
    """log of the largest probability, and entropy in nats, of the distributions after n hidden states, [n, 2]."""
    step = max(1, DENSE_SCORES // (model.config.vocab_size or 1))
    parts = []
    for part in hidden.split(step):
        log_p = model.log_probs(part)
        entropy = -(log_p.exp() * log_p.clamp(min=LEAST)).sum(-1)
        parts.append(torch.stack((log_p.amax(-1), entropy), -1))
    return torch.cat(parts)
