"""The results page of the campaign: a section for each step that was measured, and the names of the others."""

from collections.abc import Collection, Sequence

from tests.gpu.steps import Step

HEAD = """# The GPU campaign

Each section is a step of `python -m tests.gpu`: what it asks, and what came out. Without a step the command lists all.
"""


def page(steps: Sequence[Step], measured: Collection[str]) -> str:
    """The page, with an empty table for each step that has data: `docs/site/results.py` fills it in."""
    left = ", ".join(f"`{step.name}`" for step in steps if step.name not in measured)
    done = [_section(step) for step in steps if step.name in measured]
    return "\n".join([HEAD, *done, *([f"Not measured: {left}.\n"] if left else [])])


def _section(step: Step) -> str:
    return f"## {step.name}\n\n{step.asks}\n\n<!-- table: {step.name} -->\n<!-- end -->\n"
