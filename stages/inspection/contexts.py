"""The contexts that a prediction was read from, with the text that stands there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stages.inspection.reading import MemoryReader
from stages.inspection.weights import ReadEntries
from stages.text.excerpt import Excerpt, SplitText


@dataclass(frozen=True)
class Context:
    """One entry of memory that a position read.

    `reading`: its number, from 0; `weight`: its share of that reading's memory; `carried`: what it adds to the
    probability of the token it holds; `back`: positions back from the one that reads, None for a datastore's row.
    """

    reading: int
    weight: float
    carried: float
    right: bool
    back: int | None
    source: Excerpt


class Contexts:
    """Finds the source text of what is read."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader

    @cached_property
    def _corpus(self) -> SplitText:
        """The split that the datastore was made of."""
        return self._reader.corpus_of(self._reader.read["datastore"])

    def best(
        self,
        entries: Sequence[ReadEntries],
        row: int,
        token: int,
        at: int,
        here: SplitText,
        most: int,
        *,
        right: bool = False,
    ) -> list[Context]:
        """The entries that carried most at one position, the heaviest first.

        Args:
            entries: of every reading and kind.
            row: place of the position among them.
            token: the one that stands, or was written, there.
            at: the position in the text that is read, `here`.
            most: how many are wanted.
            right: whether only entries that hold the token are wanted.
        """
        found = [
            (-float(one.carried[row, entry]), number, entry)
            for number, one in enumerate(entries)
            for entry in _heaviest(one, row, most, token if right else None)
        ]
        return [
            self._context(entries[number], row, entry, token, at, here) for _, number, entry in sorted(found)[:most]
        ]

    def _context(self, entries: ReadEntries, row: int, entry: int, token: int, at: int, here: SplitText) -> Context:
        place = int(entries.places[row, entry])
        return Context(
            reading=entries.reading,
            weight=float(entries.weights[row, entry]),
            carried=float(entries.carried[row, entry]),
            right=int(entries.values[row, entry]) == token,
            back=None if entries.external else at - place,
            source=self._corpus.at(place) if entries.external else here.at(place),
        )


def _heaviest(entries: ReadEntries, row: int, most: int, token: int | None) -> list[int]:
    """Entries of a position in falling order of what they carry, at most so many; with a token those that hold it."""
    carried = entries.carried[row]
    if token is not None:
        carried = carried.where(entries.values[row] == token, 0)
    best, order = carried.sort(descending=True, stable=True)
    wanted: list[int] = order[:most][best[:most] > 0].tolist()
    return wanted
