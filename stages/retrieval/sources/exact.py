"""Code of the sources `exact` and `exact-stream`: tokens that followed the longest matches of each
context.

An entry is a token of a text. Its score is the number of tokens that its context shares with the
current one. For small τ, p(w) is the share of w among the longest matches; a larger τ gives shorter
matches more weight. Source: unbounded n-grams, Liu et al. 2024 (infini-gram, arXiv:2401.17377),
read with a temperature.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from stages.lineage.indexes import EXACT, text_splits
from stages.memory.entries import Entries, LogSums, StoredTokens
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Needs, Opening, Source
from stages.search.config import forbidden_rows
from stages.search.hidden import HiddenRows
from stages.suffixes.matches import LongestMatches, SortedContexts, SuffixRange
from stages.suffixes.sorting import open_contexts
from stages.suffixes.text import LONGEST, Text
from stages.text.tokens import open_split

ALL_POSITIONS = sys.maxsize // 2
"""Reach of a source that reads all of the past; slices of torch warn of the largest integer."""
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

    def _entries(
        self, block: ScoredRange, part: slice, matches: LongestMatches, ids: np.ndarray, role: str
    ) -> Retrieved:
        """Matches as entries; positions of `matches` refer to `ids`, and to the text that `role`
        names.
        """
        targets = block.lm.targets
        device = targets.device
        is_missing = matches.positions < 0
        # Without a token there is no match, and nothing to index.
        values = matches.positions
        if len(ids):
            values = np.where(is_missing, -1, ids[matches.positions].astype(np.int64))

        scores = torch.from_numpy(matches.shared).to(device).float()
        scores = scores.masked_fill(torch.from_numpy(is_missing).to(device), -torch.inf)
        entries = Entries(scores, torch.from_numpy(values).to(device))
        positions = torch.from_numpy(matches.positions).to(device)
        return retrieve(entries, targets[part], positions, role, are_lengths=True)


@dataclass(frozen=True)
class MatchedText:
    """The text of an exact index.

    `document_starts`: document offsets of the splits that are this text. `exclude`: name of the rule for rows
    that are not found.
    """

    contexts: SortedContexts
    document_starts: Mapping[str, np.ndarray]
    exclude: str
    hidden: HiddenRows = field(default_factory=HiddenRows)
    """Tokens that nothing finds."""

    def forbidden(self, split: str, start: int, stop: int) -> np.ndarray | None:
        """Ranges of rows that tokens [start, stop) of a split may not find, int64 [n, 2]; None:
        they may find all.
        """
        if split not in self.document_starts:
            return None
        return forbidden_rows(self.exclude, start, stop, self.document_starts[split])


class ExactSource(MatchSource):
    """Matches in the text of an index."""

    @classmethod
    def open_memory(cls, opening: Opening) -> MatchedText:
        """The sorted contexts of the index."""
        index = opening.read[EXACT]
        tokens = opening.read["tokens"]
        document_starts = {}
        for split in text_splits(index, tokens):
            arrays = open_split(tokens.zarr("tokens.zarr"), split)
            document_starts[split] = np.asarray(arrays.doc_offsets[:])
        return MatchedText(open_contexts(index), document_starts, opening.exclude)

    @classmethod
    def hidden_rows(cls, memory: MatchedText) -> Mapping[str, HiddenRows]:
        return {EXACT: memory.hidden}

    @property
    def needs(self) -> Needs:
        return Needs(reach=LONGEST)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve the longest matches of a range's contexts; a context stays within its document."""
        memory: MatchedText = self.memory
        contexts = memory.contexts
        lm = scored_range.lm
        text = _read_so_far(scored_range, contexts.text.vocabulary)
        first = len(text) - len(lm)
        forbidden = memory.forbidden(scored_range.split, lm.start, lm.stop)

        def retrieve_part(part: slice) -> Retrieved:
            positions = np.arange(first + part.start, first + part.stop)
            located = contexts.locate(text, positions)
            without = None if forbidden is None else forbidden[part]
            matches = contexts.best(located, self.width, without=without, hidden=memory.hidden)
            return self._entries(scored_range, part, matches, contexts.text.ids, EXACT)

        return retrieve_part


class ExactStreamSource(MatchSource):
    """Matches in the last positions of the split, across documents."""

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Numbers of positions back to choose from, in ascending order; None: all positions."""
        sizes: tuple[int, ...] | None = self.reading.value("size")
        return (None,) if sizes is None else sizes

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
        size = self.sizes[-1]
        return Needs(reach=ALL_POSITIONS if size is None else size + LONGEST)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Sort the past and the range together; each position finds the matches before it."""
        past = _SortedPast.of(scored_range, self.inputs.vocabulary)

        def retrieve_within(size: int | None, part: slice) -> Retrieved:
            """The matches of a part of the range, in as many positions before each."""
            matches = past.matches(part, size, self._matches)
            (entries,) = self._entries(scored_range, part, matches, past.text.ids, "").parts
            # Positions are those in past and range; readers count them from the split's start.
            rows = np.where(matches.positions < 0, -1, matches.positions + past.origin)
            device = scored_range.lm.targets.device
            return Retrieved((entries._replace(ids=torch.from_numpy(rows).to(device)),))

        def retrieve_part(part: slice) -> Retrieved:
            if len(self.sizes) == 1:
                return retrieve_within(self.sizes[0], part)
            by_size = {}
            for size in self.sizes:
                if size is not None:
                    by_size[size] = retrieve_within(size, part)
            largest = by_size[max(by_size)]
            return BySize(largest.parts, by_size)

        return retrieve_part


@dataclass(frozen=True)
class _SortedPast:
    """Contexts of the past and of a range, sorted together.

    One sort serves all positions: each starts at its own rank in that order.
    """

    contexts: SortedContexts
    first: int
    """Position of the first token of the range."""
    origin: int
    """Position 0 of past and range, counted from the split's start."""

    @classmethod
    def of(cls, scored_range: ScoredRange, vocabulary: int) -> "_SortedPast":
        """Sort the contexts of a range; matches go across documents."""
        lm = scored_range.lm
        ids = scored_range.carried.joined_tokens(lm).cpu().numpy()
        text = Text.of(ids, np.array([0, len(ids)]), vocabulary)
        return cls(SortedContexts.of(text), len(ids) - len(lm), lm.stop - len(ids))

    @property
    def text(self) -> Text:
        return self.contexts.text

    @cached_property
    def ranks(self) -> np.ndarray:
        """Rank of each position in the order, int64 [N]."""
        ranks = np.empty(len(self.text), np.int64)
        ranks[self.contexts.order] = np.arange(len(self.text))
        return ranks

    @cached_property
    def whole(self) -> np.ndarray:
        """Symbols of each context with its border, which it shares with itself, uint8 [N]."""
        symbols = self.text.lengths.astype(np.int64) + 1
        return np.minimum(symbols, LONGEST).astype(np.uint8)

    def matches(self, part: slice, size: int | None, k: int) -> LongestMatches:
        """The k longest matches of a part of the range, in the `size` positions before each; None:
        in all.
        """
        positions = np.arange(self.first + part.start, self.first + part.stop)
        ranks = self.ranks[positions]
        located = SuffixRange(ranks, self.contexts.shared[ranks], self.whole[positions])

        reach = len(self.text) if size is None else size
        earliest = np.maximum(positions - reach, 0)
        within = np.stack([earliest, positions], axis=1)
        return self.contexts.best(located, k, within=within)


@dataclass(frozen=True)
class BySize(Retrieved):
    """Entries found within each of several numbers of positions back; these numbers are the
    cut-offs.
    """

    by_size: Mapping[int, Retrieved]

    def log_sums(self, scales: Sequence[float], cutoffs: Sequence[int]) -> LogSums:
        parts = [self.by_size[size].log_sums(scales, [self._width]) for size in cutoffs]
        columns = {}
        for name in vars(parts[0]):
            columns[name] = torch.cat([getattr(part, name) for part in parts], 1)
        return LogSums(**columns)

    def stored_tokens(self, rows: slice, scale: float, cutoff: int) -> StoredTokens:
        return self.by_size[cutoff].stored_tokens(rows, scale, self._width)

    def select(self, rows: Tensor, targets: Tensor) -> Retrieved:
        by_size = {size: entries.select(rows, targets) for size, entries in self.by_size.items()}
        return BySize(super().select(rows, targets).parts, by_size)

    @property
    def _width(self) -> int:
        return self.parts[0].entries.scores.shape[1]


def _read_so_far(scored_range: ScoredRange, vocabulary: int) -> Text:
    """The past and the range as a text of documents; where documents of the past begin does not
    matter.
    """
    lm = scored_range.lm
    tokens = scored_range.carried.joined_tokens(lm).cpu().numpy()
    first = len(tokens) - len(lm)
    # Position 0 of past and range, counted from the split's start.
    origin = lm.stop - len(tokens)

    begins = np.zeros(len(tokens), np.int64)
    # A document may begin before the past that is at hand.
    begins[first:] = np.maximum(scored_range.places.document_starts - origin, 0)
    return Text.beginning(tokens, begins, vocabulary)
