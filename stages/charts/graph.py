"""Drawing of an acyclic graph from left to right, sources before the nodes that come from them.

Nodes are in columns by depth. A line that passes a column gets its own place there, between the
boxes: a dummy node of Sugiyama, Tagawa and Toda 1981. Each column is sorted by the mean height of
the nodes' sources.
"""

from collections.abc import Mapping, Sequence

from stages.charts.data import Box, Graph
from stages.charts.palette import LIGHT, SERIES
from stages.charts.vega import DASHED, Spec, layer

WIDTH, HEIGHT = 172.0, 46.0
LANE = 8.0
"""Height reserved for a line that passes a column, in pixels."""
GAP, SPACING = 34.0, 14.0
"""Distance between columns, and between nodes of a column, in pixels."""
STYLES: dict[str, Spec] = {
    "": {"fill": LIGHT["box"], "stroke": LIGHT["strong-rule"]},
    "report": {"fill": LIGHT["box"], "stroke": SERIES[0], "strokeWidth": 2},
    "missing": {"fill": LIGHT["paper"], "stroke": LIGHT["strong-rule"], "strokeDash": DASHED},
}

Columns = Sequence[Mapping[str, Sequence[str]]]
"""Boxes and passing lines of each column from the left; each with its sources in the column before.
"""


def graph_spec(plot: Graph) -> Spec:
    """Boxes in columns by depth; a line for each source that is not also reached through another
    one.
    """
    by_key = {box.key: box for box in plot.boxes}
    columns = _columns(direct_sources({box.key: box.sources for box in plot.boxes}))
    middles = _middles(columns, by_key)
    lefts = {key: depth * (WIDTH + GAP) for depth, column in enumerate(columns) for key in column}
    lines = [
        {"x": x, "y": y, "line": f"{source} {key}"}
        for column in columns
        for key, own in column.items()
        for source in own
        for x, y in _curve(
            lefts[source], middles[source], lefts[key], middles[key], key not in by_key
        )
    ]
    boxes = [
        {
            "x": lefts[key],
            "x2": lefts[key] + WIDTH,
            "y": middles[key] - HEIGHT / 2,
            "y2": middles[key] + HEIGHT / 2,
        }
        | {"head": box.head, "foot": box.foot, "words": box.tooltip or box.key, "look": box.look}
        for key, box in by_key.items()
    ]
    edge = {
        "type": "line",
        "interpolate": "monotone",
        "stroke": LIGHT["strong-rule"],
        "strokeWidth": 1.2,
    }
    text = {"type": "text", "align": "left", "dx": 10, "limit": WIDTH - 18}
    x, y = ({"field": name, "type": "quantitative", "scale": None, "axis": None} for name in "xy")
    corners = {name: {"field": name} for name in ("x2", "y2")}
    rectangles = [
        layer(
            [box for box in boxes if box["look"] == look],
            {"type": "rect", "cornerRadius": 5} | style,
            x,
            y,
            **corners,
        )
        for look, style in STYLES.items()
    ]
    return {
        "width": len(columns) * (WIDTH + GAP) - GAP,
        "height": max(middles[key] for key in by_key) + HEIGHT / 2,
        "layer": [
            layer(lines, edge, x, y, order=None, detail={"field": "line"}),
            *rectangles,
            layer(
                boxes,
                text | {"dy": 17, "fontWeight": 600, "color": LIGHT["ink"]},
                x,
                y,
                text={"field": "head"},
            ),
            layer(boxes, text | {"dy": 34, "color": LIGHT["soft"]}, x, y, text={"field": "foot"}),
        ],
    }


def _curve(
    left: float, start: float, x: float, y: float, passes: bool
) -> list[tuple[float, float]]:
    """Points of a line with horizontal ends; a line that passes a column continues to the column's
    right edge.
    """
    right = left + WIDTH
    return [
        (right, start),
        (right + GAP / 4, start),
        (x - GAP / 4, y),
        (x, y),
        *([(x + WIDTH, y)] if passes else []),
    ]


def depths(sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Length of the longest path from a node without sources to each node; nodes come after their
    sources.
    """
    found: dict[str, int] = {}
    for key, above in sources.items():
        found[key] = 1 + max((found[source] for source in above), default=-1)
    return found


def direct_sources(sources: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """For each node, the sources that are no ancestors of its other sources; nodes come after their
    sources.
    """
    above: dict[str, set[str]] = {}
    for key, own in sources.items():
        above[key] = set(own).union(*(above[source] for source in own))
    return {
        key: [
            source
            for source in dict.fromkeys(own)
            if not any(source in above[other] for other in own)
        ]
        for key, own in sources.items()
    }


def _columns(sources: Mapping[str, Sequence[str]]) -> Columns:
    """Nodes by depth, with one passing line for each source in each column between it and its
    targets.
    """
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
    """Height of the middle of every box and line, near the mean of its sources, without overlaps."""
    middles: dict[str, float] = {}
    for column in columns:
        wanted = {key: _mean([middles[source] for source in own]) for key, own in column.items()}
        ordered = sorted(wanted, key=lambda key: wanted[key])
        bottom, placed = float("-inf"), {}
        for key in ordered:
            half = (HEIGHT if key in boxes else LANE) / 2
            placed[key] = max(wanted[key], bottom + SPACING + half)
            bottom = placed[key] + half
        # Overlaps push boxes down only, so the whole column is shifted back by the mean
        # displacement.
        shift = _mean([wanted[key] - placed[key] for key in ordered])
        middles |= {key: middle + shift for key, middle in placed.items()}
    top = min(middle - (HEIGHT if key in boxes else LANE) / 2 for key, middle in middles.items())
    return {key: middle - top for key, middle in middles.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
