"""The interface of sources: the memory that each opens, and the entries that the tokens of a range
read; and unions of sources.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self, final

import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import SplitReader
from stages.memory.hyperparameter import doubling_cutoffs
from stages.models.language_model import LanguageModel
from stages.retrieval.grids import ReadingGrid, reading_grid
from stages.retrieval.reading import Reading
from stages.retrieval.registries import SOURCES
from stages.retrieval.scored_range import CHUNK_ENTRIES, Retrieved, RetrievedOf, ScoredRange
from stages.search.hidden import HiddenRows


@dataclass(frozen=True)
class Needs:
    """Parts of a scored range that a source needs."""

    keys: frozenset[str] = frozenset()
    """Representations by the evaluated model, of the range and of the `reach` positions before it.
    """
    reach: int = 0
    """Maximum number of positions back."""
    window_keys: frozenset[str] = frozenset()
    """Representations of all inputs of every window; positions of two windows are then not read
    together.
    """
    neighbors: int = 0
    """Neighbours in the datastore."""
    exact: frozenset[tuple[str, int]] = frozenset()
    """Distances computed from the stored keys: metric, and number of neighbours. They take search
    keys.
    """
    context: bool = False
    """Whether a weight reads `ScoredRange.context`: the model's confidence and entropy, and the
    token before.
    """
    models: frozenset[str] = frozenset()
    """Side models that read the text, by name."""

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            self.keys | other.keys,
            max(self.reach, other.reach),
            self.window_keys | other.window_keys,
            max(self.neighbors, other.neighbors),
            self.exact | other.exact,
            self.context or other.context,
            self.models | other.models,
        )

    @classmethod
    def of_all(cls, needs: "Iterable[Needs]") -> "Needs":
        """The union of several needs."""
        return reduce(cls.__or__, needs, cls())


@dataclass(frozen=True)
class Opening:
    """An evaluation whose sources open their memories."""

    read: Mapping[str, Artifact]
    """Artifacts by role, those of `SourceSettings.inputs` among them."""
    readings: Sequence[Reading]
    """All readings, completed; a memory that several of them read is opened once."""
    model: LanguageModel
    reader: SplitReader
    """The way the model reads splits."""
    exclude: str
    """Rule for the rows that tokens of a memory's own text do not find."""


@dataclass(frozen=True)
class SourceInputs:
    """Inputs of the sources of a row."""

    context: int
    """Inputs of a window."""
    overlapping: bool
    """Whether windows overlap, so that a position has another representation in each."""
    device: str = "cpu"
    """Type of the device that memory is read on."""
    memories: "Mapping[type[Source], Any]" = field(default_factory=dict)
    """Result of `open_memory`, or of `outline_memory`, by the class of a source."""
    vocabulary: int = 2**31


@dataclass(frozen=True)
class About:
    """Description of a source in tables."""

    amount: str
    """The amount that cut-offs count: a key of the reading, or another name of its settings."""
    doubling: bool = False
    """Whether a curve over the amount takes all powers of two."""
    distinction: str = ""
    """Suffix of its row's name that names another scoring of the same entries."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """More details for the report; JSON."""
    compared_with: Reading | None = None
    """The reading shown next to a lone reading for comparison: the same memory with other scores.
    """
    control: Reading | None = None
    """The reading that shows what its memory adds, read in its place in a row of its own."""


@dataclass(frozen=True)
class Source(ABC):
    """The memory of one reading, with everything fixed except the numbers of the grid."""

    reading: Reading
    """The requested reading, completed."""
    inputs: SourceInputs

    @classmethod
    def open_memory(cls, opening: Opening) -> Any:
        """Memory that the source reads from artifacts; None: it reads none."""
        return None

    @classmethod
    def outline_memory(
        cls, read: Mapping[str, Artifact], readings: Sequence[Reading], device: torch.device
    ) -> Any:
        """The same without its content, for plans and reports, which retrieve nothing."""
        return None

    @classmethod
    def hidden_rows(cls, memory: Any) -> Mapping[str, HiddenRows]:
        """Rows that are left out of the memory that was opened, by the role of their artifact.

        Sources whose settings say `hides_rows` have some.
        """
        return {}

    @property
    def memory(self) -> Any:
        """Result of `open_memory`, or of `outline_memory`."""
        return self.inputs.memories.get(type(self))

    @property
    def token_counts(self) -> Tensor | None:
        """Occurrences of each token among its entries, int64, followed by a 0; None: not counted."""
        return None

    @property
    @abstractmethod
    def about(self) -> About:
        """Description in tables."""

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """Requirements of `retrieve`."""

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Numbers of entries to choose from, in ascending order."""
        return tuple(sorted(set(self.reading.value(self.about.amount))))

    @property
    def width(self) -> int:
        """Maximum number of entries that a position may read."""
        return self.cutoffs[-1]

    @property
    def positions_at_once(self) -> int:
        """Number of positions whose entries fit into memory together."""
        return max(1, CHUNK_ENTRIES[self.inputs.device] // self.width)

    @abstractmethod
    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve entries for a range's tokens, part by part: no position reads itself or its
        future.
        """

    def narrowed(self, cutoff: int) -> Self:
        """The source, computing only as much as a chosen cut-off reads; itself if that saves
        nothing.
        """
        return replace(self, reading=self.reading.changed({self.about.amount: (cutoff,)}))

    @abstractmethod
    def spread(self, sample: list[ScoredRange]) -> float:
        """Unit of default factors of scores, measured in a sample of the tuning split; positive."""

    @abstractmethod
    def default_scales(self, spread: float) -> tuple[float, ...]:
        """Factors of scores, 1/τ or θ, that `tune` tries."""

    @final
    def grid(self, spread: float, alone: bool) -> ReadingGrid:
        """The grid of the reading's settings.

        Args:
            spread: spread of scores in a sample, the unit of default factors.
            alone: whether it is the only reading; then the grid also has the cut-offs of a curve.
        """
        more = doubling_cutoffs(self.cutoffs[-1]) if alone and self.about.doubling else ()
        return reading_grid(
            self.reading, self.default_scales(spread), tuple(sorted({*self.cutoffs, *more}))
        )


def open_source(reading: Reading, inputs: SourceInputs) -> Source:
    """The memory of a completed reading."""
    parts = tuple(kind(reading, inputs) for kind in source_classes(reading.sources))
    return parts[0] if len(parts) == 1 else UnionSource(reading, inputs, parts)


def source_classes(names: Iterable[str]) -> list[type[Source]]:
    """The classes of sources, each once, in their order."""
    return list(dict.fromkeys(SOURCES.load(name) for name in names))


@dataclass(frozen=True)
class UnionSource(Source):
    """One softmax over the entries of several memories.

    Cut-offs count the entries of the first part with a given amount; the other parts are read
    completely.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), appendix A, equations 6-7.
    """

    parts: tuple[Source, ...]

    @property
    def _leader(self) -> Source:
        """The part that cut-offs apply to."""
        return next(iter(self._sized), self.parts[0])

    @property
    def _sized(self) -> list[Source]:
        """The parts whose amount the reading gives."""
        return [part for part in self.parts if part.about.amount in self.reading.tunable]

    @property
    def about(self) -> About:
        """Descriptions of the parts, and the amounts read of parts other than the leader."""
        leader = self._leader.about
        abouts = [part.about for part in self.parts]
        details = {name: value for about in abouts for name, value in about.details.items()}
        return About(
            leader.amount,
            leader.doubling,
            "".join(about.distinction for about in abouts),
            details
            | {
                part.about.amount: part.cutoffs[-1]
                for part in self._sized
                if part is not self._leader
            },
            next(
                (about.compared_with for about in abouts if about.compared_with is not None), None
            ),
        )

    @property
    def needs(self) -> Needs:
        return Needs.of_all(part.needs for part in self.parts)

    @property
    def cutoffs(self) -> tuple[int, ...]:
        return self._leader.cutoffs

    @property
    def positions_at_once(self) -> int:
        return min(part.positions_at_once for part in self.parts)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        """Retrieve entries of all parts, in their order."""
        retrievals = [(part, part.retrieve(scored_range)) for part in self.parts]

        def retrieve_rows(rows: slice) -> Retrieved:
            parts = []
            for source, retrieve in retrievals:
                entries = retrieve(rows)
                if source is not self._leader:
                    entries = entries.fixed(source.cutoffs[-1])
                parts.append(entries)
            return reduce(Retrieved.concat, parts)

        return retrieve_rows

    def narrowed(self, cutoff: int) -> Self:
        leader = self._leader
        return replace(
            self, parts=tuple(p.narrowed(cutoff) if p is leader else p for p in self.parts)
        )

    def spread(self, sample: list[ScoredRange]) -> float:
        """The largest of the parts' spreads."""
        return max(part.spread(sample) for part in self.parts)

    def default_scales(self, spread: float) -> tuple[float, ...]:
        """Default scales of the last part: a datastore's, where one is read."""
        return self.parts[-1].default_scales(spread)
