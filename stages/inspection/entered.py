"""Neighbours that a model let in for a passage (SPALM), with the text at their places."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.inspection.reading import MemoryReader
from stages.text.excerpt import Excerpt


@dataclass(frozen=True)
class EnteredContext:
    """A row of a datastore that entered a hidden state, and whether it holds the token that follows."""

    right: bool
    source: Excerpt


def named(described: dict[str, Any], hidden_memory: str | None) -> dict[str, Any]:
    """JSON in which `entered` stands under the name of what entered; left out if nothing does."""
    entered = described.pop("entered")
    return described | ({f"{hidden_memory}_contexts": entered} if hidden_memory else {})


class EnteredContexts:
    """Finds the source text of what entered; of a model that lets nothing in there is none."""

    def __init__(self, reader: MemoryReader) -> None:
        self._memory = reader.range_reader.hidden_memory
        if self._memory is not None:
            self._corpus = reader.corpus_of(self._memory.datastore)

    def read(self, split: str, start: int, tokens: Sequence[int]) -> list[list[EnteredContext]]:
        """Find the neighbours that entered for each token from `start` on, nearest first."""
        if self._memory is None:
            return [[] for _ in tokens]
        rows, held = self._memory.rows(split, start, start + len(tokens))
        return [
            [
                EnteredContext(int(one) == token, self._corpus.at(int(row)))
                for row, one in zip(*near, strict=True)
                if row >= 0
            ]
            for *near, token in zip(rows, held, tokens, strict=True)
        ]
