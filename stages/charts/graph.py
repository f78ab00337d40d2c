"""Drawing of an acyclic graph from left to right, sources before the nodes that come from them.

Nodes are in columns by depth. A line that passes a column gets its own place there, between the
boxes: a dummy node of Sugiyama, Tagawa and Toda 1981. Each column is sorted by the mean height of
the nodes' sources.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from stages.charts.data import Box, Graph
from stages.charts.palette import LIGHT, SERIES
from stages.charts.sheet import fitted, new_axes

WIDTH = 184.0
HEIGHT = 46.0
INSET = 10.0
"""Distance of the text of a box from its left edge."""
CORNER = 5.0
"""Radius of a box's corners."""
LANE = 8.0
"""Height reserved for a line that passes a column, in pixels."""
GAP = 34.0
SPACING = 14.0
"""Distance between columns, and between nodes of a column, in pixels."""
STYLES: dict[str, dict[str, Any]] = {
    "": {"facecolor": LIGHT["box"], "edgecolor": LIGHT["strong-rule"]},
    "report": {"facecolor": LIGHT["box"], "edgecolor": SERIES[0], "linewidth": 2},
    "missing": {
        "facecolor": LIGHT["paper"],
        "edgecolor": LIGHT["strong-rule"],
        "linestyle": (0, (6, 4)),
    },
}

Columns = Sequence[Mapping[str, Sequence[str]]]
"""Boxes and passing lines of each column from the left; each with its sources in the column before.
"""


class Edge(NamedTuple):
    """A line from the right edge of one node to the left edge of another."""

    left: float
    start: float
    """Height of the line at `left`."""
    right: float
    end: float
    """Height of the line at `right`."""
    passes: bool
    """Whether the line continues across the column of its end."""


class Layout(NamedTuple):
    """Places of boxes and lines, in pixels from the top left."""

    width: float
    height: float
    corners: dict[str, tuple[float, float]]
    """Top left corner of each box."""
    edges: list[Edge]


def graph_axes(plot: Graph) -> Axes:
    """Boxes in columns by depth; a line for each source that is not also reached through another
    one.
    """
    layout = graph_layout(plot)
    axes = new_axes(layout.width, layout.height)
    axes.set_axis_off()
    axes.set_xlim(0, layout.width)
    # Heights are counted from the top.
    axes.set_ylim(layout.height, 0)
    for edge in layout.edges:
        axes.add_patch(_edge_patch(edge))
    for box in plot.boxes:
        _draw_box(axes, box, *layout.corners[box.key])
    return axes


def graph_layout(plot: Graph) -> Layout:
    """Places of the boxes and lines of a graph."""
    by_key = {box.key: box for box in plot.boxes}
    columns = _columns(direct_sources({box.key: box.sources for box in plot.boxes}))
    middles = _middles(columns, by_key)
    lefts = {key: depth * (WIDTH + GAP) for depth, column in enumerate(columns) for key in column}
    edges = []
    for column in columns:
        for key, sources in column.items():
            for source in sources:
                edges.append(
                    Edge(
                        left=lefts[source] + WIDTH,
                        start=middles[source],
                        right=lefts[key],
                        end=middles[key],
                        passes=key not in by_key,
                    )
                )
    return Layout(
        width=len(columns) * (WIDTH + GAP) - GAP,
        height=max(middles[key] for key in by_key) + HEIGHT / 2,
        corners={key: (lefts[key], middles[key] - HEIGHT / 2) for key in by_key},
        edges=edges,
    )


def _edge_patch(edge: Edge) -> PathPatch:
    """A curve with horizontal ends; a line that passes a column runs on to its right edge."""
    middle = (edge.left + edge.right) / 2
    points = [
        (edge.left, edge.start),
        (middle, edge.start),
        (middle, edge.end),
        (edge.right, edge.end),
    ]
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    if edge.passes:
        points.append((edge.right + WIDTH, edge.end))
        codes.append(Path.LINETO)
    path = Path(points, codes)
    # A line at the edge of the drawing is drawn in its whole width.
    return PathPatch(
        path, facecolor="none", edgecolor=LIGHT["strong-rule"], linewidth=1.2, clip_on=False
    )


def _draw_box(axes: Axes, box: Box, left: float, top: float) -> None:
    """Draw a box and its two lines of text."""
    corners = f"round,pad=0,rounding_size={CORNER}"
    corner = (left, top)
    shape = FancyBboxPatch(
        corner, WIDTH, HEIGHT, boxstyle=corners, clip_on=False, **STYLES[box.look]
    )
    axes.add_patch(shape)

    text_left = left + INSET
    text_width = WIDTH - 2 * INSET
    axes.text(text_left, top + 19, fitted(box.head, text_width), color=LIGHT["ink"])
    axes.text(text_left, top + 36, fitted(box.foot, text_width), color=LIGHT["soft"])


def depths(sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Length of the longest path from a node without sources to each node; nodes come after their
    sources.
    """
    depth_of: dict[str, int] = {}
    for key, above in sources.items():
        depth_of[key] = 1 + max((depth_of[source] for source in above), default=-1)
    return depth_of


def direct_sources(sources: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """For each node, the sources that are no ancestors of its other sources; nodes come after their
    sources.

    >>> direct_sources({"text": [], "model": ["text"], "report": ["model", "text"]})["report"]
    ['model']
    """
    ancestors: dict[str, set[str]] = {}
    direct = {}
    for key, sources_of_key in sources.items():
        # the ancestors of sources, and so all that is reached without a direct line
        indirect: set[str] = set()
        for source in sources_of_key:
            indirect |= ancestors[source]
        ancestors[key] = indirect | set(sources_of_key)

        distinct = dict.fromkeys(sources_of_key)
        direct[key] = [source for source in distinct if source not in indirect]
    return direct


def _columns(sources: Mapping[str, Sequence[str]]) -> Columns:
    """Nodes by depth, with one passing line for each source in each column between it and its
    targets.
    """
    depth = depths(sources)
    num_columns = 1 + max(depth.values())
    columns: list[dict[str, list[str]]] = [{} for _ in range(num_columns)]
    for key, sources_of_key in sources.items():
        boxes = columns[depth[key]].setdefault(key, [])
        for source in sources_of_key:
            # the line leads from column to column, each time from what stands before
            before = source
            for passed in range(depth[source] + 1, depth[key]):
                lane = f"{source} passes {passed}"
                columns[passed].setdefault(lane, [before])
                before = lane
            boxes.append(before)
    return columns


def _middles(columns: Columns, boxes: Mapping[str, Box]) -> dict[str, float]:
    """Height of the middle of every box and line, near the mean of its sources, without overlaps."""
    middles: dict[str, float] = {}
    for column in columns:
        wanted = {}
        for key, sources_of_key in column.items():
            wanted[key] = _mean([middles[source] for source in sources_of_key])

        # from top to bottom: each stands below the one before
        in_order = sorted(wanted, key=lambda key: wanted[key])
        bottom = float("-inf")
        middle_of = {}
        for key in in_order:
            half = _half_height(key, boxes)
            middle_of[key] = max(wanted[key], bottom + SPACING + half)
            bottom = middle_of[key] + half

        # Overlaps push boxes down only, so the whole column is shifted back by the mean
        # displacement.
        shift = _mean([wanted[key] - middle_of[key] for key in in_order])
        for key, middle in middle_of.items():
            middles[key] = middle + shift

    top = min(middle - _half_height(key, boxes) for key, middle in middles.items())
    return {key: middle - top for key, middle in middles.items()}


def _half_height(key: str, boxes: Mapping[str, Box]) -> float:
    """Half the height of a box, or of a line that passes."""
    height = HEIGHT if key in boxes else LANE
    return height / 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
