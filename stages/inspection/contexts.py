"""The contexts that a prediction was read from, with the text that stands there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stages.inspection.reading import MemoryReader
from stages.inspection.sources import Source, SplitText
from stages.inspection.weights import ReadCells


@dataclass(frozen=True)
class Context:
    """One cell of memory that a position read.

    `reading`: its number, from 0; `weight`: its share of that reading's memory; `carried`: what it adds to the
    probability of the token it holds; `back`: positions back from the one that reads, None for a datastore's row.
    """

    reading: int
    weight: float
    carried: float
    right: bool
    back: int | None
    source: Source


class Contexts:
    """Finds the source text of what is read."""

    def __init__(self, reader: MemoryReader, split: str, own: Any) -> None:
        """Args:
        reader: the model and its memories.
        split: what is read.
        own: its arrays, by name, as in `tokens.zarr`.
        """
        self._reader, self._split, self._own = reader, split, own

    @cached_property
    def _corpus(self) -> SplitText:
        """The split that the datastore was made of."""
        datastore = self._reader.read["datastore"]
        return SplitText.of(datastore.input("corpus"), datastore.config["split"], self._reader.text)

    def best(
        self, cells: Sequence[ReadCells], row: int, token: int, at: int, most: int, only_right: bool = False
    ) -> list[Context]:
        """The cells that carried most at one position, the heaviest first.

        Args:
            cells: of every reading and kind.
            row: place of the position among them.
            token: the one that stands, or was written, there.
            at: the position in what is read.
            most: how many are wanted.
            only_right: whether only cells that hold the token are looked at.
        """
        here = SplitText(
            self._split, self._own[f"{self._split}/ids"], self._own[f"{self._split}/doc_offsets"], self._reader.text
        )
        heaviest = sorted(
            (
                (float(one.carried[row, cell]), number, cell)
                for number, one in enumerate(cells)
                for cell in _heaviest(one, row, token, most, only_right)
            ),
            key=lambda found: (-found[0], found[1:]),
        )
        return [self._context(cells[number], row, cell, token, at, here) for _, number, cell in heaviest[:most]]

    def _context(self, cells: ReadCells, row: int, cell: int, token: int, at: int, here: SplitText) -> Context:
        place = int(cells.places[row, cell])
        return Context(
            reading=cells.reading,
            weight=float(cells.weights[row, cell]),
            carried=float(cells.carried[row, cell]),
            right=int(cells.values[row, cell]) == token,
            back=None if cells.external else at - place,
            source=self._corpus.at(place) if cells.external else here.at(place),
        )


def _heaviest(cells: ReadCells, row: int, token: int, most: int, only_right: bool) -> list[int]:
    """Cells of a position in falling order of what they carry, at most so many, none that carries nothing."""
    carried = cells.carried[row]
    if only_right:
        carried = carried.where(cells.values[row] == token, 0)
    best, order = carried.sort(descending=True, stable=True)
    wanted: list[int] = order[:most][best[:most] > 0].tolist()
    return wanted
