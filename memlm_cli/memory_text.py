"""How memories and what was retrieved of them are written in a line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import printable
from stages.numbers import number

if TYPE_CHECKING:
    from stages.inspection.contexts import Context
    from stages.text.excerpt import Excerpt


def reading_line(memory: Mapping[str, Any], split_tokens: int | None = None) -> str:
    """`external, interpolate, k 1,024, temperature 12.3 (tuned on valid), lambda 0.25 (tuned on valid)`.

    Args:
        split_tokens: of the split that was scored, which a larger cache holds whole; None: not known.
    """
    from stages.retrieval.hyperparameters import hyperparameters, number_words, that_matter

    memory = that_matter(memory)
    tuned = memory.get("tuned") or ()
    parts = ["+".join(memory["sources"]), memory["reader"]]
    for name in hyperparameters():
        if name == memory.get("learned"):
            parts.append(f"{name} learned on {memory['tune_split']} (one for all: {number(memory[name])})")
        elif memory.get(name) is not None:
            where = f" (tuned on {memory['tune_split']})" if name in tuned else ""
            parts.append(f"{name} {number_words(memory, name, split_tokens)}{where}")
    return ", ".join(parts)


def memory_lines(memories: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line a reading whose numbers are settled: `datastore: external, interpolate, k 1,024, lambda 0.25`."""
    from stages.retrieval.hyperparameters import memory_words

    default = " (numbers that nobody tuned: --report takes those of an evaluation)"
    words = memory_words(memory["sources"] for memory in memories)
    for word, memory in zip(words, memories, strict=True):
        yield f"{word}: {reading_line(memory)}{default if memory['numbers'] == 'default' else ''}"


def source_line(context: "Context") -> str:
    """Where a context stands, and its text with the token that it holds in brackets."""
    where = place_of(context.source) if context.back is None else f"{context.back} back"
    return f"{where}: {text_around(context.source)}"


def place_of(source: "Excerpt") -> str:
    """Where in a corpus a token stands, in one line."""
    return printable(source.place)


def text_around(source: "Excerpt") -> str:
    """The text around a token in one line, the token in brackets, spelled as it is by itself."""
    space = " " if source.token[:1].isspace() else ""
    return printable(" ".join(f"{source.before}{space}[{shown(source.token)}]{source.after}".split()))


def shown(label: str) -> str:
    """A token by itself, white space spelled out."""
    return printable(label.strip()) or repr(label)
