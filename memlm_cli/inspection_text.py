"""An inspected passage as text: a table of its tokens, and what each was read from."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlm_cli.memory_text import memory_lines, place_of, shown, source_line, text_around
from memlm_cli.tables import Cell, table
from stages.inspection.page import probability
from stages.numbers import number

if TYPE_CHECKING:
    from stages.inspection.inspect import Inspected, TokenView

GAIN, LOSS = "green", "red"
"""Colours of tokens that memory makes likelier, or less likely, on a terminal."""
TOLD = 0.05
"""Nats of gain or loss from which on a token is coloured."""


def inspected_text(found: "Inspected", *, terminal: bool) -> str:
    """Headline, table and contexts.

    Args:
        terminal: whether a terminal shows it, which gives it colour.
    """
    parts = [f"{found.model}, {found.split}, tokens {found.start} to {found.start + len(found.tokens) - 1}"]
    parts += memory_lines(found.memories)
    parts += filter(None, [found.shares_line])
    parts.append(table("", _columns(found), [_cells(token) for token in found.tokens], terminal=terminal))
    parts += [line for token in found.tokens for line in _context_lines(found, token)]
    return "\n".join(parts)


def _columns(found: "Inspected") -> list[str]:
    memories = [name for word in found.memory_words for name in (word, "share")]
    return ["position", "token", "model", *memories, *found.tokens[0].columns, "final", "gain"]


def _cells(token: "TokenView") -> list[Cell]:
    gain = token.gain
    label = shown(token.label), "" if abs(gain) < TOLD else GAIN if gain > 0 else LOSS
    memories = [cell for one in token.memories for cell in (probability(one.probability), f"{one.share:.3f}")]
    model, final, columns = probability(token.model), probability(token.final), map(number, token.columns.values())
    return [str(token.position), label, model, *memories, *columns, final, f"{gain:+.2f}"]


def _context_lines(found: "Inspected", token: "TokenView") -> Iterator[str]:
    """Contexts that a token was read from, the heaviest first."""
    words = found.memory_words
    if token.contexts or token.entered or token.looked_up:
        yield f"\n{token.position} {shown(token.label)}"
    for context in token.contexts:
        mark = "=" if context.right else " "
        yield f"  {mark} {context.weight:.4f} of the {words[context.reading]}: {source_line(context)}"
    for near in token.entered:
        place = f"{found.hidden_memory}: {place_of(near.source)}"
        yield f"  {'=' if near.right else ' '} {place}: {text_around(near.source)}"
    for one in token.looked_up:
        place = f"{one.weight:.4f} of attention, {one.back} back"
        yield f"  {'=' if one.right else ' '} {place}: {text_around(one.source)}"
