"""Titles of drawings: font, size, and lines; lengths are those of the SVG."""

import textwrap

WIDTH = 460.0
"""Width of the area between the axes of most charts."""
FAMILY = "DejaVu Sans"
"""Font of all drawings, which matplotlib brings."""
FONT = f"'{FAMILY}', sans-serif"
TITLE_SIZE = 13
TITLE_LINE = 17
TITLE_GAP = 4
"""Size of a title's letters, height of its lines, and distance above and below it."""
TITLE_LETTER = 8.2
"""Approximate width of a letter of a title."""


def title_lines(title: str, width: float) -> list[str]:
    """Lines of a title that are not wider than a drawing."""
    return textwrap.wrap(title, int(max(width, WIDTH) / TITLE_LETTER)) or [title]


def title_height(lines: int) -> int:
    """Height of a title of so many lines."""
    return TITLE_LINE * lines + 2 * TITLE_GAP
