"""Distributions at single positions of several texts: the model's, mixed with the memories.

All positions share one softmax and one search. The past of a text is read for it alone.

Shapes: n positions of a text, N of all texts, V vocabulary, d width, k neighbours.
"""

from collections.abc import Sequence
from itertools import accumulate
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

    They cannot if memory enters hidden states, if readings want the inputs of windows, or if
    another model makes the keys or reads along.
    """
    of_range = reader.range_reader
    encoder = of_range.encoder
    own_keys = encoder is None or encoder.model is of_range.model
    reads_alone = of_range.hidden_memory is None and not of_range.side_models
    return own_keys and reads_alone and not of_range.needs.window_keys


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
        hidden = torch.cat([text.encoding.hidden[0] for text in texts])
        log_p, log_z = self._reader.model.predict(hidden)
        tokens = [token for text in texts for token in text.targets]
        targets = torch.tensor(tokens, device=hidden.device)
        of_targets = log_p.gather(1, targets[:, None])[:, 0]
        keys = [self._keys_of(text.encoding) for text in texts]

        needs_context = self._reader.needs.context
        certainty = certainty_of_distributions(log_p) if needs_context else None
        context = None
        if certainty is not None:
            before = torch.from_numpy(np.concatenate([text.inputs for text in texts]))
            context = self._reader.context_features(certainty, before)
        queries = self._queries(keys)
        found = None if queries is None else self._found(queries, context)

        mixed = []
        for text, part, own_keys in zip(texts, _parts(texts), keys, strict=True):
            scored = LMScores(
                start=text.start,
                targets=targets[part],
                log_p=of_targets[part],
                log_z=log_z[part],
                keys=own_keys,
                context_keys={},
                hidden=None,
                state=None,
                certainty=None if certainty is None else certainty[part],
            )
            scored_range = ScoredRange(
                lm=scored,
                carried=text.past,
                places=Places(np.zeros(len(scored), np.int64), text.windows),
                found=None
                if found is None
                else FoundNeighbors(found.ids[part], found.distances[part]),
                queries=None if queries is None else queries[part],
                context=None if context is None else context[part],
                split=PASSAGE,
            )
            mixed.append(
                Distributions(self._with_memories(scored_range, log_p[part]), scored_range)
            )
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
        return search_keys(encoder.rounded(torch.cat([own[encoder.key] for own in keys])))

    def _found(self, queries: np.ndarray, context: Tensor | None) -> FoundNeighbors:
        """Neighbours of all positions, from one search."""
        assert self._reader.external is not None, "keys are searched for in a datastore"
        where = None if self._policy is None else self._policy.searches_where
        rows = None if where is None or context is None else where.worth(context).numpy()
        return self._reader.external.retrieval.of_texts(queries, rows)

    def _with_memories(self, scored_range: ScoredRange, log_p: Tensor) -> Tensor:
        """Log-probabilities of every token with all memories, float32 [n, V]."""
        return log_p if self._policy is None else self._policy.dense(scored_range, log_p)


def _parts(texts: Sequence[EncodedPositions]) -> list[slice]:
    """Where the positions of each text are among those of all.

    A text of 2 positions and one of 1 are at 0 … 1 and at 2.
    """
    ends = list(accumulate(len(text.targets) for text in texts))
    return [slice(end - len(text.targets), end) for text, end in zip(texts, ends, strict=True)]
