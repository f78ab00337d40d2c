"""The contexts behind a prediction, from a memory or from hidden states, with their text."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from torch import Tensor

from stages.diagnostics.calls import Calls
from stages.inspection.reading import MemoryReader, ReadEntries
from stages.models.language_model import LanguageModel
from stages.models.layers.memorizing import MemorizingAttention, Retrieved, Search
from stages.text.excerpt import Excerpt, SplitText


@dataclass(frozen=True)
class Context:
    """One entry of memory that a position read.

    `reading`: number of the reading, from 0. `weight`: share of that reading's memory. `carried`:
    share of the final distribution, which it adds to the probability of its token. `back`: distance
    in positions, None for a datastore.
    """

    reading: int
    weight: float
    carried: float
    right: bool
    back: int | None
    source: Excerpt
    matched: int | None = None
    """Number of equal tokens before it; None: keys are compared."""


class Contexts:
    """Finds the source text of entries that are read."""

    def __init__(self, reader: MemoryReader) -> None:
        self._corpus = cache(reader.text_of)
        """The text of a memory, by its role."""

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
        """The entries with the largest shares at one position, the largest first.

        Args:
            entries: entries of every reading and kind.
            row: row of the position in `entries`.
            token: token at the position, from the text or generated.
            at: position in the text `here`.
            most: maximum number of entries.
            right: whether only entries with this token are returned.
        """
        candidates = []
        for number, entry_list in enumerate(entries):
            # A learned memory has entries without a place, of which nothing can be quoted.
            carried = entry_list.carried[row].where(entry_list.places[row] >= 0, 0)
            if right:
                carried = carried.where(entry_list.values[row] == token, 0)
            heaviest, order = carried.sort(descending=True, stable=True)
            places = order[:most][heaviest[:most] > 0].tolist()
            candidates += [
                (-float(entry_list.carried[row, entry]), number, entry) for entry in places
            ]
        return [
            self._context(entries[number], row, entry, token, at, here)
            for _, number, entry in sorted(candidates)[:most]
        ]

    def _context(
        self, entries: ReadEntries, row: int, entry: int, token: int, at: int, here: SplitText
    ) -> Context:
        place = int(entries.places[row, entry])
        return Context(
            reading=entries.reading,
            weight=float(entries.weights[row, entry]),
            carried=float(entries.carried[row, entry]),
            right=int(entries.values[row, entry]) == token,
            back=None if entries.role else at - place,
            source=self._corpus(entries.role).at(place) if entries.role else here.at(place),
            matched=None if entries.matched is None else int(entries.matched[row, entry]),
        )


@dataclass(frozen=True)
class EnteredContext:
    """A row of a datastore that entered a hidden state, and whether its token is the next one."""

    right: bool
    source: Excerpt


def named(described: dict[str, Any], hidden_memory: str | None) -> dict[str, Any]:
    """JSON with `entered` under the name of the hidden memory; left out if there is none."""
    entered = described.pop("entered")
    return described | ({f"{hidden_memory}_contexts": entered} if hidden_memory else {})


class EnteredContexts:
    """Finds the source text of neighbours that entered hidden states; empty without a hidden
    memory.
    """

    def __init__(self, reader: MemoryReader) -> None:
        self._memory = reader.range_reader.hidden_memory
        if self._memory is not None:
            self._corpus = reader.datastore_text(self._memory.datastore)

    def read(self, split: str, start: int, tokens: Sequence[int]) -> list[list[EnteredContext]]:
        """Find the neighbours that entered for each token from `start` on, nearest first."""
        if self._memory is None:
            return [[] for _ in tokens]
        rows, neighbor_values = self._memory.rows(split, start, start + len(tokens))
        contexts = []
        for rows_of_token, values, token in zip(rows, neighbor_values, tokens, strict=True):
            of_token = []
            for row, value in zip(rows_of_token, values, strict=True):
                if row >= 0:
                    is_right = int(value) == token
                    of_token.append(EnteredContext(is_right, self._corpus.at(int(row))))
            contexts.append(of_token)
        return contexts


@dataclass(frozen=True)
class LookedUpContext:
    """An earlier position of the text whose key and value attention looked up.

    `weight`: share of all attention of the layers and heads that look up, gates included. `back`:
    distance from the token, in positions. `right`: whether the token after that position is the
    same. `source`: that token in its text.
    """

    weight: float
    back: int
    right: bool
    source: Excerpt


class LookUps:
    """Records the searches of a model's attention while it reads a passage of one stream; none if
    it has no memory.
    """

    def __init__(self, model: LanguageModel) -> None:
        layers = [part for part in model.modules() if isinstance(part, MemorizingAttention)]
        self.any = bool(layers)
        self._gates = [layer.gates().detach() / (len(layers) * layer.heads) for layer in layers]
        device = next(model.parameters()).device
        self._calls = Calls([layer.search for layer in layers], _by_position, device)
        self._found = list[list[Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found = self._calls.take()
        self._calls.close()

    def read(
        self, start: int, ids: Any, number: int, here: SplitText, most: int
    ) -> list[list[LookedUpContext]]:
        """The positions with the largest weights for each of `number` tokens from `start` on, the
        largest first.

        Args:
            ids: integers [T], the tokens of the text `here`.
            most: maximum number of positions for each token.
        """
        contexts = []
        for place, lookups in enumerate(self._weights(number), start):
            # The nearer position wins a tie, so a passage always gives the same list.
            heaviest = sorted(lookups.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
            contexts.append(
                [
                    LookedUpContext(
                        weight, age, int(ids[place - age]) == int(ids[place]), here.at(place - age)
                    )
                    for age, weight in heaviest
                    if weight > 0
                ]
            )
        return contexts

    def _weights(self, number: int) -> list[dict[int, float]]:
        """For each token, the attention by distance, summed over layers and heads."""
        weights: list[dict[int, float]] = [defaultdict(float) for _ in range(number)]
        for gates, calls in zip(self._gates, self._found, strict=True):
            rows = (
                row
                for ages, shares in calls
                for row in zip(ages, gates[:, None] * shares, strict=True)
            )
            for (ages, shares), weights_of_row in zip(rows, weights, strict=True):
                for age, weight in zip(
                    ages.flatten().tolist(), shares.flatten().tolist(), strict=True
                ):
                    weights_of_row[age] += weight
        return weights


def _by_position(search: Search, arguments: Any, retrieved: Retrieved) -> tuple[Tensor, Tensor]:
    """Ages and weights of one stream, [n, heads, k]."""
    return retrieved.ages[0].transpose(0, 1), retrieved.weights[0].transpose(0, 1)
