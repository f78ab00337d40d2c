"""An inspected passage as text; memories and retrieved contexts as single lines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import printable
from memlm_cli.tables import Cell, table
from stages.numbers import number, probability

if TYPE_CHECKING:
    from stages.inspection.contexts import Context
    from stages.inspection.inspect import Inspected, PassageView, TokenView
    from stages.text.excerpt import Excerpt


def reading_line(memory: Mapping[str, Any]) -> str:
    """`external, interpolate, k 1,024, temperature 12.3 (tuned on valid), lambda 0.25 (tuned on
    valid)`.
    """
    from stages.retrieval.hyperparameters import hyperparameters, number_words, that_matter

    memory = that_matter(memory)
    tuned = memory.get("tuned") or ()
    parts = ["+".join(memory["sources"]), memory["reader"]]
    for name in hyperparameters():
        if name == memory.get("learned"):
            # numbers read from a report have no tuning split
            where = f" on {memory['tune_split']}" if "tune_split" in memory else ""
            parts.append(f"{name} learned{where} (one for all: {number(memory[name])})")
        elif memory.get(name) is not None:
            where = f" (tuned on {memory['tune_split']})" if name in tuned else ""
            parts.append(f"{name} {number_words(memory, name, None)}{where}")
    return ", ".join(parts)


def memory_lines(memories: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each reading with settled numbers: `datastore: external, interpolate, k 1,024,
    lambda 0.25`.
    """
    from stages.retrieval.hyperparameters import memory_words, quotes

    remarks = {
        "default": " (numbers that nobody tuned: --report takes those of an evaluation)",
        "elsewhere": " (numbers tuned for another datastore)",
    }
    words = memory_words(memory["sources"] for memory in memories)
    for word, memory in zip(words, memories, strict=True):
        learned = "" if quotes(memory["sources"]) else " (learned, from no document)"
        yield f"{word}: {reading_line(memory)}{learned}{remarks.get(memory['numbers'], '')}"


def source_line(context: "Context") -> str:
    """The place of a context, and its text with its token in brackets."""
    where = place_of(context.source) if context.back is None else f"{context.back} back"
    matched = (
        ""
        if context.matched is None
        else f", {context.matched} token{'s' * (context.matched != 1)} the same"
    )
    return f"{where}{matched}: {text_around(context.source)}"


def place_of(source: "Excerpt") -> str:
    """The place of a token in a corpus, in one line."""
    return printable(source.place)


def text_around(source: "Excerpt") -> str:
    """The text around a token in one line, with the token in brackets and its white space spelled
    out.
    """
    space = " " if source.token[:1].isspace() else ""
    return printable(
        " ".join(f"{source.before}{space}[{shown(source.token)}]{source.after}".split())
    )


def shown(label: str) -> str:
    """A token with its white space spelled out."""
    return printable(label.strip()) or repr(label)


GAIN = "green"
LOSS = "red"
"""Terminal colours of tokens that memory makes more or less likely."""
SMALLEST_SHARE = 0.05
"""Minimum gain or loss, in nats, of a coloured token."""


def inspected_text(inspected: "Inspected", *, terminal: bool) -> str:
    """Headline, table and contexts.

    Args:
        terminal: whether it is for a terminal; then it has colours.
    """
    parts = [
        f"{inspected.model}, {inspected.split}, tokens {inspected.start} to {inspected.start + len(inspected.tokens) - 1}"
    ]
    parts += memory_lines(inspected.memories)
    parts += filter(None, [inspected.shares_line])
    memories = [name for word in inspected.memory_words for name in (word, "share")]
    columns = [
        "position",
        "token",
        "model",
        *memories,
        *inspected.tokens[0].columns,
        "final",
        "gain",
    ]
    parts.append(
        table("", columns, [_cells(token) for token in inspected.tokens], terminal=terminal)
    )
    parts += [_passage_line(passage) for passage in inspected.passages]
    parts += [line for token in inspected.tokens for line in _context_lines(inspected, token)]
    return "\n".join(parts)


def _passage_line(passage: "PassageView") -> str:
    """A passage that stands before some tokens, with its place, score and text."""
    where = f"before {passage.start} to {passage.stop - 1}: {place_of(passage.source)}"
    return f"{where}, score {number(passage.score)}: {printable(' '.join(passage.text.split()))}"


def _cells(token: "TokenView") -> list[Cell]:
    gain = token.gain
    label = shown(token.label), "" if abs(gain) < SMALLEST_SHARE else GAIN if gain > 0 else LOSS
    memories = [
        cell
        for memory in token.memories
        for cell in (probability(memory.probability), f"{memory.share:.3f}")
    ]
    model = probability(token.model)
    final = probability(token.final)
    columns = map(number, token.columns.values())
    return [str(token.position), label, model, *memories, *columns, final, f"{gain:+.2f}"]


def _context_lines(inspected: "Inspected", token: "TokenView") -> Iterator[str]:
    """Contexts retrieved for a token, by descending weight."""
    words = inspected.memory_words
    if token.contexts or token.entered or token.looked_up:
        yield f"\n{token.position} {shown(token.label)}"
    for context in token.contexts:
        mark = "=" if context.right else " "
        yield f"  {mark} {context.weight:.4f} of the {words[context.reading]}: {source_line(context)}"
    for near in token.entered:
        place = f"{inspected.hidden_memory}: {place_of(near.source)}"
        yield f"  {'=' if near.right else ' '} {place}: {text_around(near.source)}"
    for lookup in token.looked_up:
        place = f"{lookup.weight:.4f} of attention, {lookup.back} back"
        yield f"  {'=' if lookup.right else ' '} {place}: {text_around(lookup.source)}"
