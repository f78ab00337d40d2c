"""Elements of an SVG as text; what they say is escaped here. Units: user units, y downwards."""

from collections.abc import Iterable
from html import escape

Point = tuple[float, float]


def text(x: float, y: float, words: str, look: str = "", anchor: str = "start", turned: bool = False) -> str:
    """Words at a point; `turned` reads upwards."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{look}" text-anchor="{anchor}"{turn}>{escape(words)}</text>'


def line(start: Point, stop: Point, look: str) -> str:
    """A straight line."""
    return f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{stop[0]:.1f}" y2="{stop[1]:.1f}" class="{look}"/>'


def polyline(points: Iterable[Point], look: str) -> str:
    """Points joined by straight lines."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" class="{look}"/>'


def rectangle(corner: Point, width: float, height: float, look: str, tooltip: str = "", round_: float = 0) -> str:
    """A rectangle from its upper left corner; `tooltip` shows under the pointer."""
    rounded = f' rx="{round_:g}"' if round_ else ""
    shape = f'<rect x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{width:.1f}" height="{height:.1f}"{rounded}'
    return f'{shape} class="{look}"' + _closed("rect", tooltip)


def curve(start: Point, stop: Point, look: str) -> str:
    """A line that leaves and arrives level."""
    middle = (start[0] + stop[0]) / 2
    path = f"M{start[0]:.1f},{start[1]:.1f} C{middle:.1f},{start[1]:.1f} {middle:.1f},{stop[1]:.1f}"
    return f'<path d="{path} {stop[0]:.1f},{stop[1]:.1f}" class="{look}"/>'


MARKERS = (
    "M-3.5,0 A3.5,3.5 0 1 0 3.5,0 A3.5,3.5 0 1 0 -3.5,0 Z",
    "M-3.1,-3.1 H3.1 V3.1 H-3.1 Z",
    "M0,-4.2 L3.9,3 H-3.9 Z",
    "M0,-4.4 L4.4,0 L0,4.4 L-4.4,0 Z",
    "M0,4.2 L3.9,-3 H-3.9 Z",
    "M-1.3,-4 H1.3 V-1.3 H4 V1.3 H1.3 V4 H-1.3 V1.3 H-4 V-1.3 H-1.3 Z",
)
"""Circle, square, triangle, diamond, triangle on its tip, cross: told apart without colour."""
STAR = "M0,-6 L1.6,-1.9 L6,-1.9 L2.5,0.9 L3.8,5.2 L0,2.6 L-3.8,5.2 L-2.5,0.9 L-6,-1.9 L-1.6,-1.9 Z"


def mark(at: Point, shape: str, look: str, tooltip: str = "") -> str:
    """A small sign, `shape` drawn around a point; `tooltip` shows under the pointer."""
    return f'<path d="{shape}" transform="translate({at[0]:.1f} {at[1]:.1f})" class="{look}"' + _closed("path", tooltip)


def _closed(element: str, tooltip: str) -> str:
    return f"><title>{escape(tooltip)}</title></{element}>" if tooltip else "/>"
