"""The results page of the campaign: effects at size, a section for each measured step, and what was not measured."""

import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.effects import EFFECTS
from tests.gpu.steps import Step

HEAD = """# The GPU campaign

`python -m tests.gpu` lists its steps, and runs them.
"""
AT_SIZE = "## Effects at size\n"
ABSENT = "Not measured.\n"


def tables(folder: Path) -> dict[str, dict[str, Any]]:
    """Files of measured steps, by the steps' names."""
    found = {file.stem: tomllib.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.toml"))}
    return {name: table for name, table in found.items() if name != EFFECTS}


def page(steps: Sequence[Step], measured: Collection[str], at_size: bool) -> str:
    """The page, with an empty table for each step that has data: `docs/site/results.py` fills it in.

    Args:
        at_size: whether there are data of effects at size.
    """
    effects = _filled(EFFECTS, "change of perplexity, %") if at_size else ABSENT
    done = [
        f"## {step.name}\n\n{step.asks}\n\n{_filled(step.name, step.up)}" for step in steps if step.name in measured
    ]
    return "\n".join([HEAD, AT_SIZE, effects, *done, *_absent(steps, measured)])


def _filled(name: str, up: str) -> str:
    return f"![Bars of {up}](charts/gpu-{name}.svg)\n\n<!-- table: {name} -->\n<!-- end -->\n"


def _absent(steps: Sequence[Step], measured: Collection[str]) -> list[str]:
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
    return ", ".join(f"`{name}`" for name in left) if len(left) <= FEW else f"{len(left)} of {every}"


FEW = 4
"""Steps of an area that are named."""
