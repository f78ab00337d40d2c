"""A graph without cycles, drawn from left to right: what comes from what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.pages.drawing import shapes
from stages.pages.drawing.axes import LETTER
from stages.pages.drawing.figure import Figure

BOX = 164.0, 46.0
GAP = 46.0, 14.0
MARGIN = 8.0
Place = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """One node: two lines of words, those it comes from (of the same graph), and how it looks."""

    key: str
    head: str
    foot: str
    sources: Sequence[str]
    look: str = ""
    told: str = ""
    """Shows under the pointer."""


def graph(
    name: str, title: str, caption: str, boxes: Sequence[Box], table: tuple[Sequence[str], Sequence[Sequence[Any]]]
) -> Figure:
    """Boxes in columns by depth; a line for each source that is not also reached through another one.

    Args:
        boxes: each after its sources.
        table: columns and rows of its numbers.
    """
    places = _places(boxes)
    direct = direct_sources({box.key: box.sources for box in boxes})
    elements = []
    for box in boxes:
        x, y = places[box.key]
        for source in direct[box.key]:
            left, up = places[source]
            elements.append(shapes.curve((left + BOX[0], up + BOX[1] / 2), (x, y + BOX[1] / 2), "edge"))
    for box in boxes:
        elements += _box(box, places[box.key])
    width = max(x for x, _ in places.values()) + BOX[0] + MARGIN
    height = max(y for _, y in places.values()) + BOX[1] + MARGIN
    return Figure(name, title, caption, width, height, elements, *table)


def depths(sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many steps the longest way from a beginning to each node has; nodes come after their sources."""
    found: dict[str, int] = {}
    for key, above in sources.items():
        found[key] = 1 + max((found[source] for source in above), default=-1)
    return found


def direct_sources(sources: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Of each node the sources that lie above none of its other sources; nodes come after their sources."""
    above: dict[str, set[str]] = {}
    for key, own in sources.items():
        above[key] = set(own).union(*(above[source] for source in own))
    return {
        key: [source for source in dict.fromkeys(own) if not any(source in above[other] for other in own)]
        for key, own in sources.items()
    }


def _places(boxes: Sequence[Box]) -> dict[str, Place]:
    """Upper left corners: columns by depth, within them in the order of what they come from."""
    columns: dict[int, list[Box]] = {}
    for box, depth in zip(boxes, depths({box.key: box.sources for box in boxes}).values(), strict=True):
        columns.setdefault(depth, []).append(box)
    tallest = max(map(len, columns.values()))
    places: dict[str, Place] = {}
    for depth, column in sorted(columns.items()):
        ordered = sorted(column, key=lambda box: _height_of(box, places))
        top = MARGIN + (tallest - len(column)) * (BOX[1] + GAP[1]) / 2
        for row, box in enumerate(ordered):
            places[box.key] = MARGIN + depth * (BOX[0] + GAP[0]), top + row * (BOX[1] + GAP[1])
    return places


def _height_of(box: Box, places: Mapping[str, Place]) -> float:
    """The mean height of a box's sources."""
    return sum(places[source][1] for source in box.sources) / max(len(box.sources), 1)


def _box(box: Box, place: Place) -> list[str]:
    x, y = place
    return [
        shapes.rectangle(place, *BOX, f"box {box.look}", box.told, round_=5),
        shapes.text(x + 10, y + 19, _cut(box.head), "head"),
        shapes.text(x + 10, y + 36, _cut(box.foot), "number"),
    ]


def _cut(words: str) -> str:
    most = int((BOX[0] - 18) / LETTER)
    return words if len(words) <= most else words[: most - 1] + "…"
