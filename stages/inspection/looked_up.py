"""Entries that memorizing attention looked up for the tokens of a passage, with their text."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from stages.diagnostics.watching import Calls
from stages.models.language_model import LanguageModel
from stages.models.layers.memorizing import MemorizingAttention, Retrieved, Search
from stages.text.excerpt import Excerpt, SplitText


@dataclass(frozen=True)
class LookedUpContext:
    """An earlier position of the text, whose key and value attention looked up.

    `weight`: share of all attention of the layers and heads that look up, gates included; `back`: how many positions
    back from the token; `right`: whether the token that followed there is this one; `source`: that token.
    """

    weight: float
    back: int
    right: bool
    source: Excerpt


class LookUps:
    """Watches a model's searches while it reads a passage of one stream; of a model without any it sees none."""

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

    def read(self, start: int, ids: Any, number: int, here: SplitText, most: int) -> list[list[LookedUpContext]]:
        """The positions that counted most for each of `number` tokens from `start` on, the heaviest first.

        Args:
            ids: integers [T], of the text that they stand in, `here`.
            most: how many are wanted.
        """
        return [
            [
                LookedUpContext(weight, age, int(ids[place - age]) == int(ids[place]), here.at(place - age))
                for age, weight in _heaviest(found, most)
            ]
            for place, found in enumerate(self._weights(number), start)
        ]

    def _weights(self, number: int) -> list[dict[int, float]]:
        """For each token, the attention by distance, summed over layers and heads."""
        weights: list[dict[int, float]] = [defaultdict(float) for _ in range(number)]
        for gates, calls in zip(self._gates, self._found, strict=True):
            rows = (row for ages, shares in calls for row in zip(ages, gates[:, None] * shares, strict=True))
            for (ages, shares), found in zip(rows, weights, strict=True):
                for age, weight in zip(ages.flatten().tolist(), shares.flatten().tolist(), strict=True):
                    found[age] += weight
        return weights


def _heaviest(found: dict[int, float], most: int) -> list[tuple[int, float]]:
    """Pairs of an age and its weight, in falling order; those that have none are left out."""
    order = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(age, weight) for age, weight in order[:most] if weight > 0]


def _by_position(search: Search, given: Any, found: Retrieved) -> tuple[Tensor, Tensor]:
    """Ages and weights of one stream, [n, heads, k]."""
    return found.ages[0].transpose(0, 1), found.weights[0].transpose(0, 1)
