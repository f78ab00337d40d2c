"""The results page of the campaign: a section for each step, with its table or the word that it was not measured."""

from collections.abc import Collection, Sequence

from tests.gpu.steps import Step


def page(steps: Sequence[Step], measured: Collection[str]) -> str:
    """The page, with an empty table for each step that has data: `docs/site/results.py` fills it in."""
    head = "# The GPU campaign\n\nEach section is a step of `python -m tests.gpu`: what it asks, and what came out.\n"
    return "\n".join([head, *(_section(step, step.name in measured) for step in steps)])


def _section(step: Step, measured: bool) -> str:
    table = f"<!-- table: {step.name} -->\n<!-- end -->" if measured else "Not measured."
    return f"## {step.name}\n\n{step.asks}\n\n{table}\n"
