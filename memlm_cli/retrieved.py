"""How memories and what was retrieved of them are told in a line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import figure

if TYPE_CHECKING:
    from stages.inspection.contexts import Context

NUMBERS = ("size", "window", "k", "temperature", "theta", "lambda", "alpha")
"""Names that the numbers of a reading have."""


def memory_lines(memories: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line a reading: `memory 1: external, interpolate, k 1,024, temperature 12.3, lambda 0.25`."""
    for number, memory in enumerate(memories, start=1):
        parts = ["+".join(memory["sources"]), memory["reader"]]
        parts += [f"{name} {figure(memory[name])}" for name in NUMBERS if memory.get(name) is not None]
        yield f"memory {number}: {', '.join(parts)}"


def source_line(context: "Context") -> str:
    """Where a context stands, and its text with the token that it holds in brackets."""
    source = context.source
    if context.back is None:
        where = f"{source.split}, document {source.document}, token {source.offset}"
    else:
        where = f"{context.back} back"
    text = f"{source.before}[{source.token.strip() or source.token}]{source.after}"
    return f"{where}: {' '.join(text.split())}"
