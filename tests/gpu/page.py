"""The results page of the campaign: a section for each step that was measured, and how many are left."""

from collections.abc import Collection, Sequence

from tests.gpu.steps import Step

HEAD = """# The GPU campaign

Each section is a step of `python -m tests.gpu`: what it asks, and what came out. Without a step the command lists all.
"""


def page(steps: Sequence[Step], measured: Collection[str]) -> str:
    """The page, with an empty table for each step that has data: `docs/site/results.py` fills it in."""
    left = sum(step.name not in measured for step in steps)
    done = [_section(step) for step in steps if step.name in measured]
    return "\n".join([HEAD, *done, *([f"Not measured yet: {left} of {len(steps)} steps.\n"] if left else [])])


def _section(step: Step) -> str:
    chart = f"![Bars of {step.up}](charts/gpu-{step.name}.svg)"
    return f"## {step.name}\n\n{step.asks}\n\n{chart}\n\n<!-- table: {step.name} -->\n<!-- end -->\n"
