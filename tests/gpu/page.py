"""The results page of the campaign: effects at size, a chart of each other step, and what was not
measured.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.effects import EFFECTS, SUMMED
from tests.gpu.steps import Step

HEAD = """# The GPU campaign

`python -m tests.gpu` lists its steps.

## Effects at size
"""
ABSENT = "Not measured.\n"
Tables = Mapping[str, Mapping[str, Any]]


def tables(folder: Path) -> dict[str, dict[str, Any]]:
    """Files of measured steps, by the steps' names."""
    found = {
        file.stem: tomllib.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.toml"))
    }
    return {name: table for name, table in found.items() if name != EFFECTS}


def page(steps: Sequence[Step], measured: Tables, at_size: bool) -> str:
    """The page: the table of effects is empty, for `docs/site/results.py` fills it in; other
    figures are linked.

    Args:
        measured: files of steps, as `tables` has them.
        at_size: whether there are data of effects at size.
    """
    effects = (
        f"{_chart(EFFECTS, 'change of perplexity, %')}\n<!-- table: {EFFECTS} -->\n<!-- end -->\n"
    )
    parts = [HEAD, effects if at_size else ABSENT, *_summed(measured)]
    for area in dict.fromkeys(step.area for step in steps):
        own = [
            _section(step, measured[step.name])
            for step in steps
            if step.area == area and _stands(step, measured)
        ]
        parts += [f"## {area[0].upper()}{area[1:]}\n", *own] if own else []
    return "\n".join([*parts, *_absent(steps, measured)])


def _stands(step: Step, measured: Tables) -> bool:
    """Whether a step has a chart of its own."""
    return step.name in measured and step.name not in SUMMED


def _summed(measured: Tables) -> Iterator[str]:
    """Links to the figures that effects are made of."""
    links = [f"[{name}](data/gpu/{name}.toml)" for name in measured if name in SUMMED]
    if links:
        yield f"Of {', '.join(links)}.\n"


def _section(step: Step, table: Mapping[str, Any]) -> str:
    left = f" Not measured: {', '.join(table['left'])}." if table["left"] else ""
    return f"[{step.name}](data/gpu/{step.name}.toml): {step.asks}{left}\n\n{_chart(step.name, step.up)}"


def _chart(name: str, up: str) -> str:
    return f"![Bars of {up}](charts/gpu-{name}.svg)\n"


def _absent(steps: Sequence[Step], measured: Tables) -> list[str]:
    """Areas with steps that were not measured, a line each."""
    lines = []
    for area in dict.fromkeys(step.area for step in steps):
        own = [step for step in steps if step.area == area]
        left = [step.name for step in own if step.name not in measured]
        if left:
            lines.append(f"|{area}|{_counted(left, len(own))}|")
    return ["## Other steps\n", "|area|not measured|\n|---|---|", *lines, ""] if lines else []


def _counted(left: Sequence[str], every: int) -> str:
    """Names of a few steps, and of many how many they are."""
    return (
        ", ".join(f"`{name}`" for name in left) if len(left) <= FEW else f"{len(left)} of {every}"
    )


FEW = 4
"""Steps of an area that are named."""
