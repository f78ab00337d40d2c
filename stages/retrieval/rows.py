"""Rows of the report's table: readings of memory on top of the model, one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from stages.retrieval.grammar import composition_name, reading_name
from stages.retrieval.grids import ReadingGrid
from stages.retrieval.reading import Reading
from stages.retrieval.scored_range import Retrieved, ScoredRange, evenly
from stages.retrieval.sources.source import Needs, Source, SourceInputs, open_source


@dataclass(frozen=True)
class MemoryRow:
    """One row: the memories of readings in their order."""

    sources: tuple[Source, ...]
    trained: bool = False
    """Whether the model was trained with memory."""
    translates: bool = False
    """Whether the model reads a source."""
    distinction: str = ""
    """Suffix of the name if another row has the same."""
    above: str = ""
    """Name of a reading that changes the model itself, before memories are read; empty: none."""

    @property
    def name(self) -> str:
        """Short, for a table."""
        name = self._name
        if self.translates:
            name = name.replace("knn-lm", "knn-mt")
        if self.above:
            name = f"{self.above} then {name}"

        reading = self.sources[-1].reading
        if not reading.per_context:
            return name
        symbol = reading.tunable[reading.weight_name].symbol
        searched = f", {self.searched:.0%} searched" if self.searched < 1 else ""
        return f"{name} ({reading.weight} {symbol}{searched})"

    @property
    def searched(self) -> float:
        """Share of the tuning split's tokens for which the last reading makes a search."""
        return self.sources[-1].reading.searched

    @property
    def _name(self) -> str:
        kinds = [(source.reading.sources, source.reading.reader) for source in self.sources]
        composition = composition_name(kinds, self.trained)
        if composition is None or len(self.sources) == 1:
            names = []
            for source in self.sources:
                name = reading_name(source.reading, self.trained)
                names.append(name + source.about.distinction)
            return " then ".join(names) + self.distinction

        distinctions = dict.fromkeys(source.about.distinction for source in self.sources)
        return composition + "".join(distinctions) + self.distinction

    @property
    def needs(self) -> Needs:
        """Requirements of `retrieve`."""
        return Needs.of_all(source.needs for source in self.sources)

    def narrowed(self, cutoffs: Sequence[int]) -> "MemoryRow":
        """The row, computing only as many entries as each reading's chosen cut-off reads."""
        sources = tuple(
            source.narrowed(cutoff) for source, cutoff in zip(self.sources, cutoffs, strict=True)
        )
        return replace(self, sources=sources)

    def grids(self, spreads: Sequence[float]) -> list[ReadingGrid]:
        """The grid of each reading; a lone reading's also serves the curve over entries read."""
        alone = len(self.sources) == 1
        return [
            source.grid(spread, alone) for source, spread in zip(self.sources, spreads, strict=True)
        ]

    def retrieve(
        self, scored_range: ScoredRange
    ) -> Iterator[tuple[Tensor | slice, list[Retrieved]]]:
        """Retrieve for the counted tokens, for a few rows of the range at a time."""
        retrievals = [source.retrieve(scored_range) for source in self.sources]
        # the keys of a position differ between windows, so a part must lie in one window
        borders = []
        if self.needs.window_keys:
            windows = scored_range.places.windows
            borders = [window.scored_from - scored_range.lm.start for window in windows]

        step = min(source.positions_at_once for source in self.sources)
        for part in evenly(len(scored_range.lm), step, borders):
            rows = scored_range.rows(part)
            if isinstance(rows, Tensor) and not len(rows):
                continue
            retrieved = [retrieve(part) for retrieve in retrievals]
            if isinstance(rows, Tensor):
                counted = rows - part.start
                targets = scored_range.lm.targets[rows]
                retrieved = [memory.select(counted, targets) for memory in retrieved]
            yield rows, retrieved


def rows_of(
    readings: Sequence[Reading],
    inputs: SourceInputs,
    trained: bool,
    translates: bool = False,
    above: str = "",
) -> tuple[MemoryRow, ...]:
    """The requested row; for a composition also a row for each of its readings alone.

    Three readings or more are also read without the last, without the last two, and so on, to show
    what each adds. A lone reading comes with its comparison, and a weight for each context with one
    weight for all. A source with a control is also read with that. A reading that leaves searches
    out stands alone, since any other row would need all searches.

    Args:
        readings: completed.
        trained: whether the model was trained with memory.
        translates: whether it reads a source.
        above: what changes the model itself, by name; empty: nothing does.
    """
    if not readings:
        return ()
    sources = tuple(open_source(reading, inputs) for reading in readings)
    first = MemoryRow(sources, trained, translates, above=above)
    rows = [first, *_control_row(first, inputs)]
    if readings[-1].skips_searches:
        return tuple(rows)
    if len(sources) > 1:
        rows += [
            replace(first, sources=sources[:count]) for count in range(len(sources) - 1, 1, -1)
        ]
        rows += [replace(first, sources=(source,)) for source in sources]
        return tuple(
            replace(row, distinction=_number(rows, place)) for place, row in enumerate(rows)
        )
    compared_with = sources[0].about.compared_with
    if compared_with is not None:
        row = replace(first, sources=(open_source(compared_with, inputs),))
        if row.sources[0].about.details != sources[0].about.details or row.name != rows[0].name:
            rows.append(row)
    if readings[-1].per_context:
        rows.insert(
            1, replace(first, sources=(open_source(readings[0].with_tuned_weight(), inputs),))
        )
    return tuple(rows)


def _control_row(row: MemoryRow, inputs: SourceInputs) -> list[MemoryRow]:
    """The row with the control of each source that has one; empty: none has."""
    controls = [source.about.control for source in row.sources]
    if all(control is None for control in controls):
        return []
    sources = tuple(
        source if control is None else open_source(control, inputs)
        for source, control in zip(row.sources, controls, strict=True)
    )
    return [replace(row, sources=sources)]


def _number(rows: Sequence[MemoryRow], place: int) -> str:
    """Number that distinguishes a row from earlier rows with the same name."""
    alike = sum(row.name == rows[place].name for row in rows[: place + 1])
    return f" ({alike})" if alike > 1 else ""
