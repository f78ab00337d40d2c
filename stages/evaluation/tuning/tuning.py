"""How the numbers of readings are chosen: what the tuning split leaves, and the best of it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.output import ShardOutput
from stages.evaluation.evaluator import Evaluator
from stages.evaluation.figures.range_scores import RowSettings, summed
from stages.evaluation.figures.tuned import Tuned
from stages.evaluation.range_pass import LEARN, SAMPLE, SELECT, RangePass
from stages.evaluation.tuning.coordinate_descent import part_bytes, save_part
from stages.evaluation.tuning.learn import learn_weight, positions_bytes, save_positions, with_learned
from stages.evaluation.tuning.select import (
    Choice,
    Selected,
    choose,
    describe_by_cutoff,
    describe_grid,
    describe_row,
    select,
    tries_all,
    tuned_row,
)
from stages.metrics import perplexity
from stages.retrieval.grids import ReadingGrid
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import ScoredRange

SAMPLE_RANGES = 8
SAMPLE_TOKENS = 128


class Tuning:
    """The grids of every row and what is chosen of them, through what the shards of a pass left."""

    def __init__(
        self,
        folder: Path,
        record: Callable[[str], Mapping[str, Any]],
        rows: Sequence[MemoryRow],
        over: RangePass | None,
        weighing: RangePass | None = None,
    ) -> None:
        """Tune in a pass over a split, and learn weights in another.

        Args:
            folder: the draft's.
            record: what a shard noted, by its key.
            over: None: all numbers are given.
            weighing: None: no weight is learned.
        """
        self._folder, self._record, self._rows, self._over = folder, record, rows, over
        self._split = None if over is None else over.split
        self._shards = [] if over is None else [part.key for part in over.parts]
        self._weighing = None if weighing is None else [part.key for part in weighing.parts]

    # What shards do

    def sample(self, evaluator: Evaluator) -> dict[str, Any]:
        """The record of the first shard: how far scores spread, which default numbers are measured in.

        Looks at a few short ranges of the split; nothing is carried to them.
        """
        assert self._over is not None
        sample = evaluator.read_apart(self._over.split, sample_ranges(self._over.tokens))
        return {"spreads": [[source.spread(sample) for source in row.sources] for row in self._rows]}

    def keep_sums(self, evaluator: Evaluator, shard: str, scored_range: ScoredRange, output: ShardOutput) -> None:
        """Leave what every row is tuned by, of one range of the split; the record has the model's own sum."""
        for number, (row, grids) in enumerate(zip(self._rows, self._grids, strict=True)):
            path = output.add(_file(shard, number, grids))
            if tries_all(grids):
                save_arrays(path, evaluator.grid_nll(scored_range, row, grids))
            else:
                save_part(path, evaluator.log_sums(scored_range, row, grids))
        scored = scored_range.lm.log_p[scored_range.counted_rows]
        output.record |= {"plain_nll": -summed(scored), "tokens": len(scored)}

    @cached_property
    def _grids(self) -> list[list[ReadingGrid]]:
        """Grids of the readings of each row."""
        if self._split is None:
            return [row.grids([1.0] * len(row.sources)) for row in self._rows]
        spreads = self._record(SAMPLE)["spreads"]
        return [row.grids(spread) for row, spread in zip(self._rows, spreads, strict=True)]

    def choose(self) -> dict[str, Any]:
        """The record of the shard behind all others of the split: the best of what they left, row by row."""
        chosen = [
            choose(row, grids, [self._folder / _file(shard, number, grids) for shard in self._shards])
            for number, (row, grids) in enumerate(zip(self._rows, self._grids, strict=True))
        ]
        return {"rows": [choice._asdict() for choice in chosen]}

    def keep_positions(self, evaluator: Evaluator, shard: str, scored_range: ScoredRange, output: ShardOutput) -> None:
        """Leave what weights are learned from, of one range of the split, read with what was chosen."""
        for number, (row, selected) in enumerate(zip(self._rows, self.selected, strict=True)):
            if row.learned:
                found = evaluator.positions(scored_range, row, selected.settings)
                save_positions(output.add(_positions_file(shard, number)), found)

    def learn(self) -> dict[str, Any]:
        """The record of the shard behind these: of every row the network that gives its weight, None of others."""
        return {"rows": [self._learned_of(number) if row.learned else None for number, row in enumerate(self._rows)]}

    def _learned_of(self, number: int) -> dict[str, Any]:
        """Learned settings of a row."""
        assert self._weighing is not None
        row, settings = self._rows[number], self.selected[number].settings
        files = [self._folder / _positions_file(shard, number) for shard in self._weighing]
        off = settings.grids[-1].off
        assert off is not None, "a weight that is learned is one that switches the memory off, too"
        return learn_weight(files, settings.points[-1].weight, off, row.searched if len(row.sources) == 1 else None)

    # What is chosen

    @cached_property
    def settings(self) -> list[RowSettings]:
        """Settings that every row is scored with; asked for once weights are learned."""
        if self._weighing is None:
            return [selected.settings for selected in self.selected]
        pairs = zip(self.selected, self._record(LEARN)["rows"], strict=True)
        return [with_learned(selected.settings, learned) for selected, learned in pairs]

    def learned(self) -> dict[str, Any] | None:
        """The record of the network of the row that was asked for; None where its weight is not learned."""
        return None if self._weighing is None else self._record(LEARN)["rows"][0]

    @cached_property
    def selected(self) -> list[Selected]:
        """The settings of every row; asked for once they are chosen."""
        if self._over is None:
            return [select(row, grids) for row, grids in zip(self._rows, self._grids, strict=True)]
        return [select(*one) for one in zip(self._rows, self._grids, self._choices(), strict=True)]

    def _choices(self) -> list[Choice]:
        return [Choice(**choice) for choice in self._record(SELECT)["rows"]]

    def tuned(self) -> Tuned | None:
        """Figures of the model alone and of every row on the tuning split; None where nothing was tuned."""
        if self._split is None:
            return None
        tokens, plain = self._plain()
        triples = zip(self._rows, self._grids, self._choices(), strict=True)
        return Tuned(self._split, perplexity(plain, tokens), [tuned_row(*one, tokens) for one in triples])

    def _plain(self) -> tuple[int, float]:
        """The tokens of the tuning split that count, and the model's own sum over them, in nats."""
        records = [self._record(shard) for shard in self._shards]
        return sum(record["tokens"] for record in records), sum(record["plain_nll"] for record in records)

    def memories(self) -> list[list[dict[str, Any]]]:
        """The readings of every row, the plain model first, with their hyperparameters; JSON."""
        triples = zip(self._rows, self.selected, self.settings, strict=True)
        return [[], *(describe_row(row, one._replace(settings=at), self._split) for row, one, at in triples)]

    def curves(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
        """For every memory row: its name, the name of its amount, and its settings at each amount."""
        pairs = zip(self._rows, self.selected, strict=True)
        return [(row.name, row.sources[0].about.amount, describe_by_cutoff(row, selected)) for row, selected in pairs]

    def grid(self) -> Mapping[str, Any] | None:
        """The grid of the row that was asked for, if it is one reading's and was tuned; JSON."""
        if self._split is None:
            return None
        tokens, plain = self._plain()
        grid = describe_grid(self._rows[0], self.selected[0], tokens)
        if grid is None:
            return None
        return {"split": self._split, **grid, "plain_nll": plain / tokens}


def scratch_bytes(rows: Sequence[MemoryRow], tokens: int) -> int:
    """Size of what shards leave of rows whose readings are tuned in turn, or whose weight is learned.

    Sums over a grid are small beside it.

    Args:
        tokens: that count, of the tuning split.
    """
    grids = [row.grids([1.0] * len(row.sources)) for row in rows]
    learned = sum(row.learned for row in rows)
    return sum(part_bytes(one, tokens) for one in grids if not tries_all(one)) + learned * positions_bytes(tokens)


def sample_ranges(total: int) -> list[tuple[int, int]]:
    """A few short ranges spread evenly over `total` tokens."""
    starts = np.linspace(0, max(0, total - SAMPLE_TOKENS), SAMPLE_RANGES).astype(int)
    return [(start, min(start + SAMPLE_TOKENS, total)) for start in sorted(set(starts.tolist()))]


def _file(shard: str, row: int, grids: Sequence[ReadingGrid]) -> str:
    return f"scratch/{shard}-{row}.{'npy' if tries_all(grids) else 'npz'}"


def _positions_file(shard: str, row: int) -> str:
    return f"scratch/{shard}-{row}.npz"
