"""Code of the sources `exact` and `exact-stream`: tokens that followed the longest matches of each
context.

An entry is a token of a text. Its score is the number of tokens that its context shares with the
current one. For small τ, p(w) is the share of w among the longest matches; a larger τ gives shorter
matches more weight. Source: unbounded n-grams, Liu et al. 2024 (infini-gram, arXiv:2401.17377),
read with a temperature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import Entries, HeldTokens, LogSums
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Needs, Source
from stages.suffixes.matches import Located, Matched, SortedContexts
from stages.suffixes.text import LONGEST, Text

TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
"""Default grid of τ, in tokens of a match."""


class MatchSource(Source):
    """The longest matches of each position: the part that both sources share."""

    @property
    def about(self) -> About:
        return About("matches")

    def spread(self, sample: list[ScoredRange]) -> float:
        """One token of a match."""
        return 1.0

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """1/τ."""
        return tuple(1 / (temperature * spread) for temperature in TEMPERATURES)

    def _retrieved(
        self, block: ScoredRange, part: slice, found: Matched, ids: np.ndarray, role: str
    ) -> Retrieved:
        """Matches as entries; places in `found` refer to `ids`, and to the text that `role` names."""
        device, missing = block.lm.targets.device, found.places < 0
        values = (
            np.where(missing, -1, ids[found.places].astype(np.int64)) if len(ids) else found.places
        )
        scores = torch.from_numpy(found.shared).to(device).float()
        scores = scores.masked_fill(torch.from_numpy(missing).to(device), -torch.inf)
        entries = Entries(scores, torch.from_numpy(values).to(device))
        return retrieve(
            entries, block.lm.targets[part], torch.from_numpy(found.places).to(device), role
        )


class ExactSource(MatchSource):
    """Matches in the text of an index."""

    @property
    def needs(self) -> Needs:
        return Needs(reach=LONGEST)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve the longest matches of a range's contexts; a context stays within its document."""
        contexts = self.inputs.contexts
        assert contexts is not None, "the index is opened"
        text = _read_so_far(scored_range, contexts.text.vocabulary)
        first, forbidden = len(text) - len(scored_range.lm), scored_range.forbidden

        def of(part: slice) -> Retrieved:
            located = contexts.locate(text, np.arange(first + part.start, first + part.stop))
            found = contexts.best(
                located, self.width, without=None if forbidden is None else forbidden[part]
            )
            return self._retrieved(scored_range, part, found, contexts.text.ids, "exact")

        return of


class ExactStreamSource(MatchSource):
    """Matches in the last positions of the split, across documents."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of positions back to choose from."""
        return self.reading.value("size")

    @property
    def about(self) -> About:
        """Description; cut-offs count the positions back if these are a choice, else the matches."""
        if len(self.sizes) > 1:
            return About("size", details={"matches": self._matches})
        return About("matches", details={"size": self.sizes[0]})

    @property
    def width(self) -> int:
        """Maximum number of matches that a position reads, over all sizes together."""
        return len(self.sizes) * self._matches

    @property
    def _matches(self) -> int:
        return self.reading.value("matches")[-1]

    @property
    def needs(self) -> Needs:
        return Needs(reach=self.sizes[-1] + LONGEST)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Sort the past and the range together; each position finds the matches before it."""
        lm = scored_range.lm
        ids = scored_range.carried.joined_tokens(lm).cpu().numpy()
        first = len(ids) - len(lm)
        contexts = SortedContexts.of(Text.of(ids, np.array([0, len(ids)]), self.inputs.vocabulary))
        # one sort of past and range serves all; each position starts at its own place in that order
        rank = np.empty(len(ids), np.int64)
        rank[contexts.order] = np.arange(len(ids))
        whole = np.minimum(contexts.text.known.astype(np.int64) + 1, LONGEST).astype(np.uint8)

        def within(own: np.ndarray, size: int, part: slice) -> Retrieved:
            at = Located(rank[own], contexts.shared[rank[own]], whole[own])
            found = contexts.best(
                at, self._matches, within=np.stack([np.maximum(own - size, 0), own], axis=1)
            )
            places = np.where(found.places < 0, -1, found.places + lm.stop - len(ids))
            retrieved = self._retrieved(scored_range, part, found, ids, "")
            (one,) = retrieved.parts
            return Retrieved((one._replace(ids=torch.from_numpy(places).to(lm.targets.device)),))

        def of(part: slice) -> Retrieved:
            own = np.arange(first + part.start, first + part.stop)
            each = {size: within(own, size, part) for size in self.sizes}
            last = each[self.sizes[-1]]
            return last if len(each) == 1 else BySize(last.parts, each)

        return of


@dataclass(frozen=True)
class BySize(Retrieved):
    """Entries found within each of several numbers of positions back; these numbers are the
    cut-offs.
    """

    by_size: Mapping[int, Retrieved]

    def log_sums(self, scales: Sequence[float], cutoffs: Sequence[int]) -> LogSums:
        sums = [self.by_size[size].log_sums(scales, [self._width]) for size in cutoffs]
        return LogSums(
            **{name: torch.cat([vars(one)[name] for one in sums], 1) for name in vars(sums[0])}
        )

    def held(self, rows: slice, scale: float, cutoff: int) -> HeldTokens:
        return self.by_size[cutoff].held(rows, scale, self._width)

    def taken(self, rows: Tensor, targets: Tensor) -> Retrieved:
        each = {size: one.taken(rows, targets) for size, one in self.by_size.items()}
        return BySize(super().taken(rows, targets).parts, each)

    @property
    def _width(self) -> int:
        return self.parts[0].entries.scores.shape[1]


def _read_so_far(scored_range: ScoredRange, vocabulary: int) -> Text:
    """The past and the range as a text of documents; where documents of the past begin does not
    matter.
    """
    tokens = scored_range.carried.joined_tokens(scored_range.lm).cpu().numpy()
    begins = np.zeros(len(tokens), np.int64)
    origin = scored_range.lm.stop - len(tokens)
    begins[len(tokens) - len(scored_range.lm) :] = np.maximum(
        scored_range.places.document_starts - origin, 0
    )
    return Text.beginning(tokens, begins, vocabulary)
