"""Code of the sources `local` and `long`: the recent past of the split itself."""

import numpy as np
import torch
from torch import Tensor

from stages.examples.windows import window_starts
from stages.memory.recent import Recent, recent_entries, recent_matches
from stages.retrieval.grids import positive_median
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import (
    CHUNK_ENTRIES,
    MatchedEntries,
    Retrieved,
    RetrievedOf,
    ScoredRange,
)
from stages.retrieval.sources.source import About, Needs, Source

FEWEST_POSITIONS = 64
"""Minimum number of positions read at a time: a smaller matrix product is limited by memory
bandwidth.
"""

SHARPNESS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0)
"""Default grid of θ, in units of 1 / (best - median score): nats by which the best exceeds the
median.
"""


class RecentSource(Source):
    """Earlier positions of the window (`local`), the last positions of the split (`long`), or both.

    A position in both is read once, with the key of `local`.
    """

    @property
    def about(self) -> About:
        """Description; cut-offs count the positions of `long`, or of a window."""
        if not self._long:
            return About("window")
        return About(
            "size", details={"scope": self.reading.value("scope")}, compared_with=self._unigram
        )

    @property
    def _unigram(self) -> Reading | None:
        """The unigram cache to compare a tuned cache with: it ignores the keys."""
        if self.reading.sources != ("long",) or self.reading.scale_name not in self.reading.choices:
            return None
        return self.reading.changed({"theta": (0.0,), "temperature": None})

    @property
    def _local(self) -> bool:
        return "local" in self.reading.sources

    @property
    def _long(self) -> bool:
        return "long" in self.reading.sources

    @property
    def _key(self) -> str:
        assert self.reading.comparison.key is not None, "a completed reading has a key"
        return self.reading.comparison.key

    @property
    def _by_window(self) -> bool:
        """Whether positions of two windows must not be read together."""
        return self._local and self.inputs.overlapping

    @property
    def needs(self) -> Needs:
        keys = frozenset({self._key})
        return Needs(keys, self.width, keys if self._by_window else frozenset())

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Sizes to choose from; `local` alone has one, its window."""
        sizes: tuple[int, ...] = (
            self.reading.value("size") if self._long else (self.inputs.context,)
        )
        return tuple(sorted(set(sizes)))

    @property
    def width(self) -> int:
        """Maximum number of positions that may be read."""
        return max(self.cutoffs[-1], self.inputs.context) if self._local else self.cutoffs[-1]

    @property
    def positions_at_once(self) -> int:
        return max(FEWEST_POSITIONS, CHUNK_ENTRIES[self.inputs.device] // self.width)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve the positions before each token of a range, the nearest first."""
        scored = scored_range.lm
        carried = scored_range.carried
        keys = carried.joined_keys(scored, self._key)
        tokens = carried.joined_tokens(scored)
        origin = scored.stop - len(tokens)
        first = self._first(scored_range, origin)
        window = self._window(scored_range, origin)

        def retrieve_part(part: slice) -> Retrieved:
            # Keys before the earliest position that any of these may read are left out of the
            # product.
            earliest = int(np.minimum(first[part], window[part]).min())
            after = scored.start + part.stop
            at_hand = slice(earliest - origin, after - origin)
            part_keys = self._keys(scored_range, keys[at_hand], earliest, part)
            # With θ = 0 all scores are 0, so that none need be computed.
            if self.reading.comparison.theta == (0.0,):
                part_keys = part_keys.new_zeros(len(part_keys), 1)

            part_window = None
            if self._local:
                part_window = torch.from_numpy(window[part] - earliest).to(keys.device)
            at = Recent(
                keys=part_keys,
                tokens=tokens[at_hand],
                first=torch.from_numpy(first[part] - earliest).to(keys.device),
                similarity=self.reading.comparison.similarity or "dot",
                width=self.width,
                window=part_window,
            )
            return Retrieved((MatchedEntries(recent_entries(at), recent_matches(at)),))

        return retrieve_part

    def _first(self, scored_range: ScoredRange, origin: int) -> np.ndarray:
        """The earliest position that each token reads by `long`, int64 [n]; without `long` the
        token itself.
        """
        positions = np.arange(scored_range.lm.start, scored_range.lm.stop)
        if not self._long:
            return positions
        earliest = positions - self.cutoffs[-1]
        if self.reading.value("scope") == "document":
            earliest = np.maximum(earliest, scored_range.places.document_starts)
        # Nothing before what is carried is at hand.
        return np.maximum(earliest, origin)

    def _window(self, scored_range: ScoredRange, origin: int) -> np.ndarray:
        """Start of each token's window, int64 [n]; without `local` the token itself."""
        start = scored_range.lm.start
        stop = scored_range.lm.stop
        if not self._local:
            return np.arange(start, stop)
        return np.maximum(window_starts(scored_range.places.windows, start, stop), origin)

    def _keys(self, scored_range: ScoredRange, keys: Tensor, earliest: int, part: slice) -> Tensor:
        """Keys [m + n, d] from `earliest` on; inside an overlapping window those of that window."""
        if not self._by_window:
            return keys
        scored = scored_range.lm
        token = scored.start + part.start
        number, window = next(
            (number, window)
            for number, window in enumerate(scored_range.places.windows)
            if window.scored_from <= token < window.stop
        )

        # The context of the window, which it has read again, replaces the keys at its positions.
        begin = max(earliest, window.start)
        context = scored.context_keys[self._key][number][begin - window.start :]
        before = keys[: begin - earliest]
        after = keys[begin - earliest + len(context) :]
        return torch.cat((before, context, after))

    def spread(self, sample: list[ScoredRange]) -> float:
        """Median difference between a position's best and median score, from a sample; 1 if it is
        not positive.
        """
        ahead = []
        for part in sample:
            scores = self.retrieve(part)(slice(0, len(part.lm))).parts[0].entries.scores
            present = scores.masked_fill(scores.isneginf(), torch.nan)
            ahead.append(scores.amax(-1) - present.nanmedian(-1).values)
        return positive_median(torch.cat(ahead))

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """θ, in units of the `spread` of a sample."""
        return tuple(sharpness / spread for sharpness in SHARPNESS)
