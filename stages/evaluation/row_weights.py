"""The weights of all rows of an evaluation: a fold over passes of the tuning split; and figures of
the tuning.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.artifacts.output import ShardOutput
from stages.evaluation.passes import Part, RangePass
from stages.evaluation.range_reader import RangeReader
from stages.metrics import perplexity
from stages.retrieval.registries import CHOICES
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.weights.per_context import WEIGH
from stages.retrieval.weights.policy import Arrays, WeightPolicy, open_policies

SAMPLE_RANGES = 8
SAMPLE_TOKENS = 128


@dataclass(frozen=True)
class ArrayFiles:
    """Arrays by name in several files; each iteration reads them again, one file at a time."""

    paths: Sequence[Path]

    def __iter__(self) -> Iterator[Arrays]:
        for path in self.paths:
            with np.load(path, allow_pickle=False) as file:
                yield {name: file[name] for name in file.files}


@dataclass(frozen=True)
class RowWeights:
    """The policies of all rows, with the choices in the records of a draft."""

    folder: Path
    """Folder of the draft."""
    record: Callable[[str], Mapping[str, Any]]
    """Returns the record of a shard, by its key."""
    rows: Sequence[MemoryRow]
    passes: Sequence[RangePass]
    """Passes over the tuning split; none if all numbers are given."""
    _policies: dict[str | None, list[WeightPolicy]] = field(default_factory=dict)

    # The fold

    @property
    def first(self) -> str:
        """Name of the first pass."""
        return self.passes[0].name

    def policies(self, before: str | None = None) -> list[WeightPolicy]:
        """The policy of every row, with the choices made before a pass; None: with all choices."""
        # opened once for each pass, since a fitted network is read from its record
        if before not in self._policies:
            spreads = self.record(self.passes[0].sample.key)["spreads"] if self.passes else None
            policies = open_policies(self.rows, bool(self.passes), spreads)
            for weight_pass in self.passes:
                if weight_pass.name == before:
                    break
                chosen = self.record(weight_pass.choice.key)["rows"]
                pairs = zip(policies, chosen, strict=True)
                policies = [
                    policy if choice is None else policy.after(weight_pass.name, choice)
                    for policy, choice in pairs
                ]
            self._policies[before] = policies
        return self._policies[before]

    def sample(self, reader: RangeReader) -> dict[str, Any]:
        """The record of the first shard: the spread of scores, the unit of default candidates.

        It reads a few short ranges of the split, each without a past.
        """
        first = self.passes[0]
        sample = reader.read_separately(first.split, sample_ranges(first.tokens))
        spreads = []
        for row in self.rows:
            spreads.append([source.spread(sample) for source in row.sources])
        return {"spreads": spreads}

    def observe(self, part: Part, block: ScoredRange, output: ShardOutput) -> None:
        """Write the observations of each policy for a range; the record has the model's own sum."""
        for number, policy in self._policies_in(part.phase):
            with output.add(_file(part, number)).open("wb") as file:
                np.savez(file, **policy.observe(part.phase, block))  # type: ignore[arg-type]
        log_p = block.lm.log_p[block.counted_rows]
        output.record |= {"plain_nll": -float(log_p.sum(dtype=torch.float64)), "tokens": len(log_p)}

    def choose(self, over: RangePass, settled: Mapping[int, int]) -> dict[str, Any]:
        """The record of the shard after a pass: a choice for every row that took part.

        Args:
            settled: by row, the best candidate by another measure than likelihood.
        """
        chosen: list[Mapping[str, Any] | None] = [None] * len(self.rows)
        for number, policy in self._policies_in(over.name):
            files = ArrayFiles([self.folder / _file(part, number) for part in over.parts])
            if number in settled:
                chosen[number] = policy.settle(policy.candidates[settled[number]], files)
            else:
                chosen[number] = policy.choose(over.name, files)
        return {"rows": chosen}

    def _policies_in(self, step: str) -> list[tuple[int, WeightPolicy]]:
        """Numbers and policies of the rows that take part in a pass."""
        result = []
        for number, policy in enumerate(self.policies(step)):
            names = [weight_pass.name for weight_pass in policy.passes]
            if step in names:
                result.append((number, policy))
        return result

    # Figures for the report

    def learned(self) -> Mapping[str, Any] | None:
        """The record of the requested row's learned weights by context; None if one weight serves
        all contexts.
        """
        policies = self.policies()
        return policies[0].choices.get(WEIGH.name) if policies else None

    def files(self) -> dict[str, Any]:
        """Additional files of the report, JSON: the fitted network of the first row, and its
        choices for `restored`.
        """
        policies = self.policies()
        learned = self.learned()
        files = dict(policies[0].files) if policies else {}
        if learned is not None and learned["network"] is not None:
            files["weight-network.json"] = learned["network"]
        if self.passes and self.rows[0].sources[-1].reading.per_context:
            spreads = self.record(self.passes[0].sample.key)["spreads"][0]
            files[CHOICES] = {"spreads": spreads, "choices": policies[0].choices}
        return files

    def tuning(self, largest: Mapping[str, int]) -> dict[str, Any]:
        """The entry `tuning` of `metrics.json`: perplexities of the model alone and of every row on
        the tuning split.

        Args:
            largest: upper limit of each setting (`k`, `size`).
        """
        if not self.passes:
            return {"split": None, "plain": None, "rows": [], "largest": dict(largest)}
        tokens, plain = self._plain()
        rows = [tuned_row(policy, tokens) for policy in self.policies()]
        figures = {"split": self.passes[0].split, "plain": perplexity(plain, tokens), "rows": rows}
        return {**figures, "largest": dict(largest)}

    def _plain(self) -> tuple[int, float]:
        """The number of counted tokens of the tuning split, and the model's own sum over them, in
        nats.
        """
        records = [self.record(part.key) for part in self.passes[0].parts]
        tokens = sum(record["tokens"] for record in records)
        nats = sum(record["plain_nll"] for record in records)
        return tokens, nats

    def memories(self) -> list[list[dict[str, Any]]]:
        """The readings of every row, with their hyperparameters, the model alone first; JSON."""
        split = self.passes[0].split if self.passes else None
        return [[], *(policy.describe(split) for policy in self.policies())]

    def curves(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
        """For every memory row: its name, the unit of its cut-offs (`k`, `size`), and its settings
        at each cut-off.
        """
        policies = [(policy, policy.row.sources[0].about.amount) for policy in self.policies()]
        return [
            (policy.row.name, amount, policy.describe_points(policy.curve))
            for policy, amount in policies
        ]

    def grid(self) -> Mapping[str, Any] | None:
        """The grid of the requested row, if it is one reading's and was tuned; JSON."""
        if not self.passes:
            return None
        tokens, plain = self._plain()
        grid = self.policies()[0].describe_grid(tokens)
        return (
            None
            if grid is None
            else {"split": self.passes[0].split, **grid, "plain_nll": plain / tokens}
        )


def tuned_row(policy: WeightPolicy, tokens: int) -> dict[str, Any]:
    """Figures of a row on the tuning split, JSON, from sums over `tokens` tokens; those not known
    are None.

    `over`: the setting that limits the first memory, `k` or `size`; `curve`: its values with their
    perplexities, if the row reads one memory. Of each memory: the name of its weight, whether it is
    the lowest of several candidates, and whether it is off, so that memory has no effect, though
    others were tried.
    """
    choice = policy.chosen
    grids = policy.grids
    sources = policy.row.sources
    weights = [(grid, point.weight) for grid, point in zip(grids, choice.points, strict=True)]
    curve = zip(grids[0].cutoffs, choice.nll_by_cutoff, strict=False)
    return {
        "perplexity": None if choice.best_nll is None else perplexity(choice.best_nll, tokens),
        "over": sources[0].about.amount,
        "curve": [
            (cutoff, None if nll is None else perplexity(nll, tokens)) for cutoff, nll in curve
        ],
        "weights": [source.reading.weight_name for source in sources],
        "lowest": [
            len(grid.weights) > 1 and weight == min(grid.weights) for grid, weight in weights
        ],
        "off": [len(grid.tried) > 1 and grid.is_off(weight) for grid, weight in weights],
    }


def sample_ranges(total: int) -> list[tuple[int, int]]:
    """A few short ranges spread evenly over `total` tokens.

    >>> sample_ranges(100), len(sample_ranges(10_000))
    ([(0, 100)], 8)
    """
    starts = np.linspace(0, max(0, total - SAMPLE_TOKENS), SAMPLE_RANGES).astype(int)
    return [(start, min(start + SAMPLE_TOKENS, total)) for start in sorted(set(starts.tolist()))]


def _file(part: Part, row: int) -> str:
    return f"scratch/{part.key}-{row}.npz"
