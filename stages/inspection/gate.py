"""What the gate of a model read at a passage, with the text that stands there."""

from collections.abc import Sequence
from dataclasses import dataclass

from stages.inspection.reading import MemoryReader
from stages.text.excerpt import Source, SplitText


@dataclass(frozen=True)
class GateContext:
    """One of the neighbours that a gate let in, and whether it holds the token that follows."""

    right: bool
    source: Source


class GateContexts:
    """Finds the source text of the neighbours that a gate read; for a model without a gate there are none."""

    def __init__(self, reader: MemoryReader) -> None:
        self._gate = reader.evaluator.gate
        if self._gate is not None:
            datastore = reader.read["gate_neighbors"].find("datastore")
            self._corpus = SplitText.of(
                datastore.input("corpus").zarr("tokens.zarr"), datastore.config["split"], reader.text
            )

    def read(self, split: str, start: int, tokens: Sequence[int]) -> list[list[GateContext]]:
        """The neighbours of each of the tokens that stand in a split from `start` on, the nearest first."""
        if self._gate is None:
            return [[] for _ in tokens]
        number = self._gate.numbers[0]
        rows = self._gate.tokens.group[f"{split}/ids"][start : start + len(tokens), :number]
        return [
            [
                GateContext(int(self._gate.tokens.values[row]) == token, self._corpus.at(int(row)))
                for row in near
                if row >= 0
            ]
            for near, token in zip(rows, tokens, strict=True)
        ]
