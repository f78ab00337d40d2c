"""A graph without cycles, drawn from left to right: what comes from what.

Columns by depth. A line that passes a column gets a place of its own there, so that it runs between the boxes
(the dummy nodes of Sugiyama, Tagawa and Toda 1981); each column is ordered by the mean height of what it comes from.
"""

from collections.abc import Mapping, Sequence

from stages.charts.data import Box, Graph
from stages.charts.drawing import shapes
from stages.charts.drawing.figure import Drawing

WIDTH, HEIGHT = 172.0, 46.0
LANE = 8.0
"""Height of the place of a line that passes a column."""
GAP, SPACING = 34.0, 14.0
"""Between columns, and between what stands in one."""
MARGIN = 8.0
LETTER, BOLD_LETTER = 6.4, 7.4
"""Widths of the letters of the two lines, about."""


Columns = Sequence[Mapping[str, Sequence[str]]]
"""From left to right: boxes, and lines that pass, each with what it comes from one column before."""


def draw_graph(plot: Graph) -> Drawing:
    """Boxes in columns by depth; a line for each source that is not also reached through another one."""
    by_key = {box.key: box for box in plot.boxes}
    columns = _columns(direct_sources({box.key: box.sources for box in plot.boxes}))
    middles = _middles(columns, by_key)
    elements = [line for depth, column in enumerate(columns) for line in _lines(depth, column, middles, by_key)]
    for depth, column in enumerate(columns):
        for key in column.keys() & by_key.keys():
            elements += _box(by_key[key], MARGIN + depth * (WIDTH + GAP), middles[key] - HEIGHT / 2)
    width = len(columns) * (WIDTH + GAP) - GAP + 2 * MARGIN
    height = max(middles[key] for key in by_key) + HEIGHT / 2 + MARGIN
    return Drawing(width, height, elements)


def depths(sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many steps the longest way from a beginning to each node has; nodes come after their sources."""
    found: dict[str, int] = {}
    for key, above in sources.items():
        found[key] = 1 + max((found[source] for source in above), default=-1)
    return found


def direct_sources(sources: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Keep, for each node, the sources that lie above none of its other sources; nodes come after their sources."""
    above: dict[str, set[str]] = {}
    for key, own in sources.items():
        above[key] = set(own).union(*(above[source] for source in own))
    return {
        key: [source for source in dict.fromkeys(own) if not any(source in above[other] for other in own)]
        for key, own in sources.items()
    }


def _columns(sources: Mapping[str, Sequence[str]]) -> Columns:
    """Nodes by depth, with one passing line for each source and each column between it and those it leads to."""
    depth = depths(sources)
    columns: list[dict[str, list[str]]] = [{} for _ in range(1 + max(depth.values()))]
    for key, own in sources.items():
        held = columns[depth[key]].setdefault(key, [])
        for source in own:
            before = source
            for passed in range(depth[source] + 1, depth[key]):
                lane = f"{source} passes {passed}"
                columns[passed].setdefault(lane, [before])
                before = lane
            held.append(before)
    return columns


def _middles(columns: Columns, boxes: Mapping[str, Box]) -> dict[str, float]:
    """The height of the middle of everything, near to what it comes from; nothing overlaps."""
    middles: dict[str, float] = {}
    for column in columns:
        wanted = {key: _mean([middles[source] for source in own]) for key, own in column.items()}
        ordered = sorted(wanted, key=lambda key: wanted[key])
        bottom, placed = float("-inf"), {}
        for key in ordered:
            half = (HEIGHT if key in boxes else LANE) / 2
            placed[key] = max(wanted[key], bottom + SPACING + half)
            bottom = placed[key] + half
        shift = _mean([wanted[key] - placed[key] for key in ordered])
        middles |= {key: middle + shift for key, middle in placed.items()}
    top = min(middle - (HEIGHT if key in boxes else LANE) / 2 for key, middle in middles.items())
    return {key: middle - top + MARGIN for key, middle in middles.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _lines(
    depth: int, column: Mapping[str, Sequence[str]], middles: Mapping[str, float], boxes: Mapping[str, Box]
) -> list[str]:
    """The lines that reach a column, and those that cross it."""
    left = MARGIN + depth * (WIDTH + GAP)
    drawn = []
    for key, own in column.items():
        end = left, middles[key]
        drawn += [shapes.curve((left - GAP, middles[source]), end, "edge") for source in own]
        if key not in boxes:
            drawn.append(shapes.line(end, (left + WIDTH, middles[key]), "edge"))
    return drawn


def _box(box: Box, x: float, y: float) -> list[str]:
    return [
        shapes.rectangle((x, y), WIDTH, HEIGHT, f"box {box.look}", box.tooltip, round_=5),
        shapes.text(x + 10, y + 19, _cut(box.head, BOLD_LETTER), "head"),
        shapes.text(x + 10, y + 36, _cut(box.foot, LETTER), "number"),
    ]


def _cut(words: str, letter: float) -> str:
    most = int((WIDTH - 18) / letter)
    return words if len(words) <= most else words[: most - 1] + "…"
