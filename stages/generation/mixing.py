"""Distributions at single positions of several texts: the model's, mixed with the memories.

All positions share one softmax and one search. The past of a text is read for it alone.

Shapes: n positions of a text, N of all texts, V vocabulary, d width, k neighbours.
"""

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import Places
from stages.encoding.key_encoder import search_keys
from stages.encoding.scoring import LMScores, certainty_of_distributions
from stages.examples.windows import Window
from stages.inspection.reading import MemoryReader
from stages.inspection.request import PASSAGE
from stages.models.backbone import Encoding
from stages.retrieval.neighbors import FoundNeighbors
from stages.retrieval.scored_range import ScoredRange


class EncodedPositions(NamedTuple):
    """n positions of a text, as the model encoded them."""

    start: int
    encoding: Encoding
    """Representations [1, n, d]."""
    inputs: np.ndarray
    """The token before each position, int64 [n]."""
    targets: Sequence[int]
    """Tokens at the positions, n ids; the last one may be a placeholder."""
    past: CarriedState
    """The text before `start`, as far as readings need it."""
    windows: list[Window]
    """The windows that hold the positions."""


class Distributions(NamedTuple):
    """Distributions of the tokens at n positions of a text, and what the memories read there."""

    log_p: Tensor
    """Log-probabilities of every token with all memories, float32 [n, V], in nats."""
    scored_range: ScoredRange
    """The positions, and the inputs of their readings."""


def mixes_together(reader: MemoryReader) -> bool:
    """Whether positions of several texts can be mixed together.

    They cannot if memory enters hidden states, if readings want the inputs of windows, if another
    model makes the keys or reads along, or if passages of an open book stand in each window.
    """
    range_reader = reader.range_reader
    encoder = range_reader.encoder
    makes_keys = encoder is None or encoder.model is range_reader.model
    reads_alone = range_reader.hidden_memory is None and not range_reader.side_models
    reads_windows = range_reader.needs.window_keys or range_reader.split_reader.rereads
    return makes_keys and reads_alone and not reads_windows


class MemoryMixer:
    """Mixes a model's distributions with those of its memories."""

    def __init__(self, reader: MemoryReader) -> None:
        """`reader`: one of those that `mixes_together`."""
        self._policy = reader.policy
        self._reader = reader.range_reader
        encoder = self._reader.encoder
        search_key = () if encoder is None else (encoder.key,)
        self._keys = sorted({*self._reader.needs.keys, *search_key})

    def unscored(self, start: int, encoding: Encoding, targets: Sequence[int]) -> LMScores:
        """Positions of a text with their keys, but without scores, for the past of later ones."""
        hidden = encoding.hidden[0]
        nothing = hidden.new_zeros(len(hidden))
        tokens = torch.tensor(list(targets), dtype=torch.long, device=hidden.device)
        return LMScores(start, tokens, nothing, nothing, self._keys_of(encoding), {}, None, None)

    def mix(self, texts: Sequence[EncodedPositions]) -> list[Distributions]:
        """Distributions of the positions of each text."""
        if not texts:
            return []

        # The model's own distributions, for all positions at once.
        hidden = torch.cat([text.encoding.hidden[0] for text in texts])
        log_p, log_z = self._reader.model.predict(hidden)
        tokens = chain.from_iterable(text.targets for text in texts)
        targets = torch.tensor(list(tokens), device=hidden.device)
        target_log_p = log_p.gather(1, targets[:, None])[:, 0]

        # What decides whether to search, and how far to trust the memories.
        certainty = None
        context = None
        if self._reader.needs.context:
            certainty = certainty_of_distributions(log_p)
            inputs = torch.from_numpy(np.concatenate([text.inputs for text in texts]))
            context = self._reader.context_features(certainty, inputs)

        # One search for all positions.
        keys = [self._keys_of(text.encoding) for text in texts]
        queries = self._queries(keys)
        neighbors = None if queries is None else self._neighbors(queries, context)

        mixed = []
        for text, part, text_keys in zip(texts, _parts(texts), keys, strict=True):
            scored = LMScores(
                start=text.start,
                targets=targets[part],
                log_p=target_log_p[part],
                log_z=log_z[part],
                keys=text_keys,
                context_keys={},
                hidden=None,
                state=None,
                certainty=None if certainty is None else certainty[part],
            )
            scored_range = ScoredRange(
                lm=scored,
                carried=text.past,
                places=Places(np.zeros(len(scored), np.int64), text.windows),
                neighbors=None if neighbors is None else _neighbors_of(neighbors, part),
                queries=None if queries is None else queries[part],
                context=None if context is None else context[part],
                split=PASSAGE,
            )
            with_memories = self._with_memories(scored_range, log_p[part])
            mixed.append(Distributions(with_memories, scored_range))
        return mixed

    def _keys_of(self, encoding: Encoding) -> dict[str, Tensor]:
        """Representations by name that are searched with, or kept, float32 [n, d] each."""
        return {name: encoding.key(name)[0].float() for name in self._keys}

    def _queries(self, keys: Sequence[dict[str, Tensor]]) -> np.ndarray | None:
        """Search keys of all positions, rounded as stored ones are, float32 [N, d]; None: no
        datastore is read.
        """
        encoder = self._reader.encoder
        if encoder is None:
            return None
        searched = torch.cat([text_keys[encoder.key] for text_keys in keys])
        return search_keys(encoder.rounded(searched))

    def _neighbors(self, queries: np.ndarray, context: Tensor | None) -> FoundNeighbors:
        """Neighbours of all positions, from one search."""
        assert self._reader.external is not None, "keys are searched for in a datastore"
        # Without a rule that says where a search is worth its time, all positions are searched.
        rule = None if self._policy is None else self._policy.searches_where
        rows = None if rule is None or context is None else rule.worth(context).numpy()
        return self._reader.external.retrieval.of_texts(queries, rows)

    def _with_memories(self, scored_range: ScoredRange, log_p: Tensor) -> Tensor:
        """Log-probabilities of every token with all memories, float32 [n, V]."""
        return log_p if self._policy is None else self._policy.dense(scored_range, log_p)


def _neighbors_of(neighbors: FoundNeighbors, part: slice) -> FoundNeighbors:
    """Neighbours of some positions."""
    return FoundNeighbors(neighbors.ids[part], neighbors.distances[part])


def _parts(texts: Sequence[EncodedPositions]) -> list[slice]:
    """Where the positions of each text are among those of all.

    A text of 2 positions and one of 1 are at 0 … 1 and at 2.
    """
    borders = accumulate((len(text.targets) for text in texts), initial=0)
    return [slice(start, stop) for start, stop in pairwise(borders)]
