"""Effects at size: changes of perplexity that steps of the campaign measured, in one table and
chart.
"""

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
        cells = (
            next((one["cells"] for one in table["rows"] if one["cells"][0] == self.row), None)
            if table
            else None
        )
        figure = cells[table["columns"].index(self.column)] if table and cells else ""
        return None if figure == "" else float(figure)


class Effect(NamedTuple):
    """A change of perplexity by seed: pairs of a figure with memory, and one without."""

    memory: str
    text: str
    pairs: Sequence[tuple[Figure, Figure]]

    def changes(self, tables: Tables) -> list[float]:
        """Changes in percent of the seeds that were measured."""
        found = [(one.found(tables), other.found(tables)) for one, other in self.pairs]
        return [
            100 * (one / other - 1) for one, other in found if one is not None and other is not None
        ]


PAPERS = {
    "trime": {"novels": -19.7},
    "spalm": {"novels": -4.1},
    "memorizing-many": {"code": -10.2, "proofs": -15.4, "novels": -3.3},
    "compressive": {"novels": -7.4},
}
"""Changes of the papers by the text nearest to theirs: WikiText-103 of TRIME and SPALM, Github,
Isabelle and PG-19 of Memorizing (arXiv 2203.08913, table 4), PG-19 of Compressive (arXiv
1911.05507)."""


def every() -> Iterator[Effect]:
    """All effects: TRIME against a cache of its window, all others against a Transformer-XL."""
    for name, rows, column in (
        ("trime", ("novels-trime-{}", "novels-plain-{}"), "with memory"),
        ("spalm", ("SPALM", "Transformer-XL"), "perplexity"),
    ):
        pairs = []
        for seed in range(SEEDS):
            one, other = (Figure(f"{name}-novels-{seed}", row.format(seed), column) for row in rows)
            pairs.append((one, other))
        yield Effect(name, "novels", pairs)
    for name in LAYERS:
        for text in TEXTS if name != "transformer-xl" else ():
            one, other = (
                Figure(f"layers-{text}-{which}", f"{text}-{which}")
                for which in (name, "transformer-xl")
            )
            yield Effect(name, text, [(one, other)])


SUMMED = {figure.step for one in every() for pair in one.pairs for figure in pair}
"""Steps whose figures effects are made of; they have no chart of their own."""


def effects(tables: Tables) -> str | None:
    """The file of the table and chart, a row for each memory, and the paper's below; None: nothing
    was measured.
    """
    here: dict[str, dict[str, Mapping[str, float]]] = {}
    for one in every():
        if found := one.changes(tables):
            here.setdefault(one.memory, {})[one.text] = changed(found)
    if not here:
        return None
    rows = []
    for memory, found in here.items():
        rows.append([memory, *(found.get(text, "") for text in TEXTS)])
        paper = PAPERS.get(memory, {})
        if paper:
            rows.append(
                [
                    f"{memory}, paper",
                    *({"percent": paper[text]} if text in paper else "" for text in TEXTS),
                ]
            )
    setup = "Change of test perplexity: layers at equal time, TRIME and SPALM at equal updates."
    bars = ", ".join(f"{text} = {place}" for place, text in enumerate(TEXTS, 1))
    return "\n".join(
        [
            f"setup = {json.dumps(setup)}",
            f"columns = {json.dumps(['', *TEXTS])}",
            "",
            "[chart]",
            'title = "What memory gains at size, and in the papers"',
            'caption = "Change of test perplexity of models that learned on a GPU, above the papers\' changes."',
            'up = "change of perplexity, %"',
            f"bars = {{ {bars} }}",
            *(f"\n[[rows]]\ncells = [{', '.join(map(_toml, row))}]" for row in rows),
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
