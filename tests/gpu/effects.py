"""Effects at size: changes of perplexity that steps of the campaign measured, in one table and chart."""

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from scipy.stats import t as student

from tests.gpu.steps import LAYERS, TEXTS

EFFECTS = "effects-at-size"
"""Name of the table."""
SEEDS = 3
Tables = Mapping[str, Mapping[str, Any]]
"""Files of steps, by the steps' names."""


class Figure(NamedTuple):
    """A perplexity: the step whose table has it, its row and its column."""

    step: str
    row: str
    column: str = "perplexity"

    def found(self, tables: Tables) -> float | None:
        """None where it was not measured."""
        table = tables.get(self.step)
        cells = next((one["cells"] for one in table["rows"] if one["cells"][0] == self.row), None) if table else None
        figure = cells[table["columns"].index(self.column)] if table and cells else ""
        return None if figure == "" else float(figure)


class Effect(NamedTuple):
    """A change of perplexity, by seed, beside the paper's in percent (None: of other text)."""

    name: str
    against: str
    pairs: Sequence[tuple[Figure, Figure]]
    """With memory, and without."""
    paper: float | None = None

    def changes(self, tables: Tables) -> list[float]:
        """Changes in percent of the seeds that were measured."""
        found = [(one.found(tables), other.found(tables)) for one, other in self.pairs]
        return [100 * (one / other - 1) for one, other in found if one is not None and other is not None]


PAPERS = {
    ("memorizing-many", "code"): -10.2,
    ("memorizing-many", "proofs"): -15.4,
    ("memorizing-many", "novels"): -3.3,
    ("compressive", "novels"): -7.4,
}
"""Changes against a Transformer-XL: Github, Isabelle, PG-19 (arXiv 2203.08913, table 4); PG-19 (arXiv 1911.05507)."""


def every() -> Iterator[Effect]:
    """All effects, in the order of the chart."""
    for name, against, paper, rows, column in (
        ("trime", "a cache of its window", -19.7, ("novels-trime-{}", "novels-plain-{}"), "with memory"),
        ("spalm", "a Transformer-XL", -4.1, ("SPALM", "Transformer-XL"), "perplexity"),
    ):
        pairs = []
        for seed in range(SEEDS):
            one, other = (Figure(f"{name}-novels-{seed}", row.format(seed), column) for row in rows)
            pairs.append((one, other))
        yield Effect(f"{name}, novels", against, pairs, paper)
    for name in LAYERS:
        for text in TEXTS if name != "transformer-xl" else ():
            one, other = (Figure(f"layers-{text}-{which}", f"{text}-{which}") for which in (name, "transformer-xl"))
            yield Effect(f"{name}, {text}", "a Transformer-XL", [(one, other)], PAPERS.get((name, text)))


def effects(tables: Tables) -> str | None:
    """The file of the table and chart; None where nothing was measured."""
    rows = [(one, one.changes(tables)) for one in every()]
    cells = [
        [one.name, one.against, changed(found), "" if one.paper is None else {"percent": one.paper}, len(found)]
        for one, found in rows
        if found
    ]
    if not cells:
        return None
    columns = ["memory", "against", "here", "the paper", "seeds"]
    return "\n".join(
        [
            'setup = "Change of test perplexity at equal time for layers, and at equal updates for the others."',
            f"columns = {json.dumps(columns)}",
            "",
            "[chart]",
            'title = "What memory gains at size, here and in the papers"',
            'caption = "Change of test perplexity of models that learned on a GPU, beside the papers\' changes."',
            'up = "change of perplexity, %"',
            'bars = { here = 2, "the paper" = 3 }',
            *(f"\n[[rows]]\ncells = [{', '.join(map(_toml, row))}]" for row in cells),
            "",
        ]
    )


def changed(changes: Sequence[float]) -> dict[str, float]:
    """The mean of changes, and its 95 % interval by Student's t where there are several."""
    found = {"percent": round(mean(changes), 1)}
    if len(changes) > 1:
        half = float(student.ppf(0.975, len(changes) - 1)) * stdev(changes) / len(changes) ** 0.5
        found |= {"low": round(mean(changes) - half, 1), "high": round(mean(changes) + half, 1)}
    return found


def _toml(cell: Any) -> str:
    """A cell as TOML."""
    if isinstance(cell, dict):
        return f"{{ {', '.join(f'{name} = {value}' for name, value in cell.items())} }}"
    return json.dumps(cell, ensure_ascii=False)
