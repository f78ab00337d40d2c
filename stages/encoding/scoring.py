"""Scores a range of tokens with the language model alone, and makes the search keys of a memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages import arguments
from stages.encoding.encode import EncodedBlock, HiddenReader, encode
from stages.encoding.probe import RangeProbe, ScoredBlock
from stages.errors import UsageError, did_you_mean
from stages.examples.cutting import WindowSettings
from stages.examples.streams import Streams
from stages.models.language_model import LanguageModel, State

DENSE_SCORES = 1 << 24
"""Maximum number of probabilities in memory at once, over whole vocabularies."""
SMALLEST = -1e4
"""A substitute for log 0: 0 · log 0 would be nan."""


@dataclass(frozen=True)
class LMScores:
    """Scores of tokens [start, start + n), in order: `targets` int64, `log_p` and `log_z` float32,
    all [n], in nats.

    `keys` [n, d], float32, are the requested keys, by name. `context_keys`, by name, is a list with
    an item [c, d] for each window that scores the tokens: its keys before its first token here.
    `hidden` [r, d] are the inputs of the softmax in the requested rows. `state` is the backbone's
    state after the tokens. `certainty` [n, 2], if requested, is that of `certainty_of`. Keys do not
    include a hidden memory.
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
    distributions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def stop(self) -> int:
        return self.start + len(self)

    def with_targets(self, tokens: Sequence[int]) -> "LMScores":
        """The first positions with these tokens, for readings of later positions; it has no scores."""
        number = len(tokens)
        return LMScores(
            start=self.start,
            targets=self.targets.new_tensor(list(tokens)),
            log_p=self.log_p[:number],
            log_z=self.log_z[:number],
            keys={name: keys[:number] for name, keys in self.keys.items()},
            context_keys={},
            hidden=None,
            state=None,
        )


def score_ids(
    model: LanguageModel,
    ids: Sequence[int],
    eos: int,
    context: int,
    keys: Iterable[str] = ("hidden",),
) -> LMScores:
    """Score one stream of tokens in windows, like a split of an evaluation, on the model's device.

    Models that also read a source are not supported.

    Args:
        ids: ids of its tokens, at least one.
        eos: the token before the first one.
        context: inputs of a window or segment.
        keys: representations to keep of the tokens, `hidden` or `ffn-input`.
    Raises: UsageError naming what is wrong, and its row.
    """
    config = model.config
    tokens = arguments.tokens(ids, "ids", vocabulary=config.vocab_size)
    arguments.require_positions(len(tokens), "ids")
    arguments.tokens([eos], "eos", vocabulary=config.vocab_size)
    context = arguments.count(context, "context")
    longest = config.reads.longest_context
    if longest is not None and context > longest:
        raise UsageError(
            f"context is {longest:,} inputs of this model at the most, not {context:,}."
        )
    if config.reads.source:
        raise UsageError(
            f"A model with backbone {config.backbone!r} reads a source: use memlm evaluate."
        )
    keys = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in keys:
        if key not in config.reads.keys:
            raise UsageError(
                f"keys: {key!r} is none of this model; {did_you_mean(str(key), config.reads.keys)}"
            )

    windows = WindowSettings(context, 1 if config.pools else context)
    documents = np.array([0, len(tokens)])
    texts = Streams(tokens, int(eos), config.cutting(windows), documents)
    return score_blocks(model, encode(model.eval(), texts.blocks(0, len(tokens))), keys)


class _ScoreCollector:
    """Scores of a range, and what is kept of its tokens, block by block.

    Args: as of `score_blocks`.
    """

    def __init__(
        self,
        model: LanguageModel,
        keys: Iterable[str],
        context_keys: Iterable[str],
        hidden_rows: Tensor | None,
        certainty: bool,
        distribution_rows: Tensor | None,
    ) -> None:
        self._model = model
        self._hidden_rows = hidden_rows
        self._wants_certainty = certainty
        self._distribution_rows = distribution_rows

        self._start: int | None = None
        self._num_tokens = 0
        self._state: State = None
        # a tensor for each block
        self._targets: list[Tensor] = []
        self._log_p: list[Tensor] = []
        self._log_z: list[Tensor] = []
        self._keys: dict[str, list[Tensor]] = {name: [] for name in keys}
        self._context_keys: dict[str, list[Tensor]] = {name: [] for name in context_keys}
        self._hidden: list[Tensor] = []
        self._certainty: list[Tensor] = []
        self._distributions: list[Tensor] = []

    def add(self, block: EncodedBlock, hidden: Tensor, log_p: Tensor, log_z: Tensor) -> None:
        """Add a block with its scores [n]; `hidden` [n, d] includes what memory added."""
        if self._start is None:
            self._start = block.start
        rows = slice(self._num_tokens, self._num_tokens + len(hidden))
        self._num_tokens = rows.stop
        self._state = block.state
        self._targets.append(block.targets)
        self._log_p.append(log_p)
        self._log_z.append(log_z)

        for name, parts in self._keys.items():
            parts.append(block.key(name).float())
        for name, contexts in self._context_keys.items():
            # A copy, because a view would keep the block's whole encoding in memory.
            contexts += [part.float().clone() for part in block.context_keys(name)]
        if self._hidden_rows is not None:
            self._hidden.append(hidden[self._hidden_rows[rows]])
        if self._wants_certainty:
            self._certainty.append(certainty_of(self._model, hidden))
        if self._distribution_rows is not None:
            # Computed here, since the weights of a model that learns are others after the block.
            dense = hidden[self._distribution_rows[rows]]
            self._distributions.append(self._model.log_probs(dense))

    def scores(self) -> LMScores:
        """The scores of all blocks, joined."""
        assert self._start is not None, "a range without tokens cannot be scored"
        return LMScores(
            start=self._start,
            targets=torch.cat(self._targets),
            log_p=torch.cat(self._log_p),
            log_z=torch.cat(self._log_z),
            keys={name: torch.cat(parts) for name, parts in self._keys.items()},
            context_keys=self._context_keys,
            hidden=torch.cat(self._hidden) if self._hidden else None,
            state=self._state,
            certainty=torch.cat(self._certainty) if self._certainty else None,
            distributions=torch.cat(self._distributions) if self._distributions else None,
        )


def score_blocks(
    model: LanguageModel,
    blocks: Iterable[EncodedBlock],
    keys: Iterable[str] = (),
    context_keys: Iterable[str] = (),
    hidden_rows: Tensor | None = None,
    reader: HiddenReader | None = None,
    probes: Sequence[RangeProbe] = (),
    certainty: bool = False,
    distribution_rows: Tensor | None = None,
) -> LMScores:
    """Score encoded tokens with the model that encoded them.

    Args:
        keys: representations to keep of the tokens (`hidden`, `ffn-input`).
        context_keys: representations to keep also of the inputs before the tokens in their windows.
        hidden_rows: bool [n], tokens whose hidden states are kept; None: none.
        reader: adds memory to the hidden states; None: they are scored unchanged.
        probes: probes that observe the range.
        certainty: whether `certainty_of` is computed for all tokens.
        distribution_rows: bool [n], tokens whose whole distributions are kept; None: none.
    """
    collector = _ScoreCollector(
        model, keys, context_keys, hidden_rows, certainty, distribution_rows
    )
    for block in blocks:
        hidden = block.hidden if reader is None else reader.apply(model, block)
        log_p, log_z = model.log_prob(hidden, block.targets)
        for probe in probes:
            probe.observe(ScoredBlock(model, block, hidden, log_p))
        collector.add(block, hidden, log_p, log_z)
    return collector.scores()


def certainty_of(model: LanguageModel, hidden: Tensor) -> Tensor:
    """log of the largest probability, and entropy in nats, of the distributions after n hidden
    states, [n, 2].
    """
    step = max(1, DENSE_SCORES // (model.config.vocab_size or 1))
    parts = []
    for part in hidden.split(step):
        parts.append(certainty_of_distributions(model.log_probs(part)))
    return torch.cat(parts)


def certainty_of_distributions(log_p: Tensor) -> Tensor:
    """Same as `certainty_of`, for log-probabilities of every token, [n, V]."""
    entropy = -(log_p.exp() * log_p.clamp(min=SMALLEST)).sum(-1)
    return torch.stack((log_p.amax(-1), entropy), -1)
