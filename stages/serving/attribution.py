"""The sources of a text's tokens as JSON: the model, each memory, and the passages behind them."""

from typing import Any

from stages.inspection.contexts import Context, EnteredContext
from stages.inspection.inspect import Inspected, TokenView


def attributed_tokens(inspected: Inspected, number: int) -> list[dict[str, Any]]:
    """The last tokens of an inspected text, or all where it has fewer than `number`.

    `p` is the probability of a token; `model` and `memories` are the parts of it that each added.
    `alone` is its probability by the model alone.
    """
    return [_token(inspected, token) for token in inspected.tokens[-number:]] if number else []


def _token(inspected: Inspected, token: TokenView) -> dict[str, Any]:
    words = inspected.memory_words
    added = [memory.share * memory.probability for memory in token.memories]
    memories = [{"name": word, "p": part} for word, part in zip(words, added, strict=True)]
    described: dict[str, Any] = {
        "id": token.id,
        "token": token.label,
        "p": token.final,
        "model": max(0.0, token.final - sum(added)),
        "alone": token.model,
        "memories": memories,
        "contexts": [_context(words, token, context) for context in token.contexts],
    }
    if inspected.hidden_memory is not None:
        described[f"{inspected.hidden_memory}_contexts"] = [
            _entered(context) for context in token.entered
        ]
    return described


def _context(words: list[str], token: TokenView, context: Context) -> dict[str, Any]:
    """A passage that a memory read: `weight` is its share of the final distribution."""
    source = context.source
    # Entries of a cache stand in the text itself, which is no document.
    itself = context.back is not None
    return {
        "memory": words[context.reading],
        "document": None if itself else source.name or str(source.document),
        "position": token.position - (context.back or 0) if itself else source.offset,
        "before": source.before,
        "token": source.token,
        "after": source.after,
        "weight": context.carried,
        "right": context.right,
    }


def _entered(context: EnteredContext) -> dict[str, Any]:
    """A passage whose token entered a hidden state."""
    source = context.source
    return {
        "document": source.name or str(source.document),
        "position": source.offset,
        "before": source.before,
        "token": source.token,
        "after": source.after,
        "right": context.right,
    }
