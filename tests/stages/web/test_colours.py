"""Pages have the colours of the figures, and no others."""

import re
from pathlib import Path

from stages.charts.palette import DARK, LIGHT, page_style

LITERAL = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl|lab|lch|hwb|oklab|oklch)a?\(")
SHADOWS = {"#0005", "#fff5"}
"""Of edges beyond which there is more: no colours of anything that is shown."""
LENGTHS = {"strength", "columns", "natural", "least"}
"""Variables that are no colours."""


def test_every_page_has_the_colours_of_the_figures(pages: list[Path]) -> None:
    for page in pages:
        html = page.read_text("utf-8")
        assert page_style() in html, page.name
        rest = re.sub(r'href="[^"]*"', "", html.replace(page_style(), ""))
        assert set(LITERAL.findall(rest)) == SHADOWS, page.name
        own = dict(re.findall(r"--([\w-]+): ([^;]+);", rest[: rest.index("</style>")]))
        colours = {name: value for name, value in own.items() if name != "shadow"}
        assert set(colours.values()) <= {f"var(--{name})" for name in LIGHT}, page.name
        assert set(re.findall(r"var\(--([\w-]+)\)", rest)) <= {*LIGHT, *own, *LENGTHS}, page.name
        assert LIGHT.keys() == DARK.keys()
