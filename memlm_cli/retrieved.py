"""How memories and what was retrieved of them are told in a line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import figure, printable

if TYPE_CHECKING:
    from stages.inspection.contexts import Context
    from stages.inspection.sources import Source

NUMBERS = ("size", "window", "k", "temperature", "theta", "lambda", "alpha")
"""Names that the numbers of a reading have."""


def memory_lines(memories: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line a reading: `memory 1: external, interpolate, k 1,024, temperature 12.3, lambda 0.25`."""
    for number, memory in enumerate(memories, start=1):
        parts = ["+".join(memory["sources"]), memory["reader"]]
        parts += [f"{name} {figure(memory[name])}" for name in NUMBERS if memory.get(name) is not None]
        default = " (numbers that nobody tuned: --report takes those of an evaluation)"
        yield f"memory {number}: {', '.join(parts)}{default if memory['numbers'] == 'default' else ''}"


def source_line(context: "Context") -> str:
    """Where a context stands, and its text with the token that it holds in brackets."""
    where = place_of(context.source) if context.back is None else f"{context.back} back"
    return f"{where}: {text_around(context.source)}"


def place_of(source: "Source") -> str:
    """Where in a corpus a token stands."""
    return f"{source.split}, document {source.document}, token {source.offset}"


def text_around(source: "Source") -> str:
    """The text around a token in one line, the token in brackets."""
    token = source.token.strip() or source.token
    space = " " if source.token[:1].isspace() else ""
    return printable(" ".join(f"{source.before}{space}[{token}]{source.after}".split()))


def shown(label: str) -> str:
    """A token by itself, white space spelled out."""
    return printable(label.strip()) or repr(label)
