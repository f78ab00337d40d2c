"""The colours of all drawings: in a page light or dark as the reader's screen is, in a file light, as paper is."""

import re
from pathlib import Path

RULES = Path(__file__).with_name("figure.css")
SHADES = 10
"""Colours of cells, from weak to strong: classes h0 … h9."""
STEPS = 11
"""Colours of shares, from 0 to 1: classes g0 … g10."""


def _mixed(first: str, second: str, share: float) -> str:
    """A colour between two; `share` of the second."""
    pairs = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def _palette(named: str, series: str, shades: str, middle: str) -> dict[str, str]:
    """Every colour by its name.

    Args:
        named: `name #rrggbb` in a row.
        series: of lines and bars, the blue and the orange first: they are also the ends of what lies between 0 and 1.
        shades: of cells.
        middle: between the two ends.
    """
    words = named.split()
    lines = series.split()
    halves = [_mixed(lines[1], middle, 2 * k / (STEPS - 1)) for k in range(STEPS // 2)]
    halves += [_mixed(middle, lines[0], 2 * k / (STEPS - 1)) for k in range(STEPS // 2 + 1)]
    numbered = {"s": lines, "h": shades.split(), "g": halves}
    return dict(zip(words[::2], words[1::2], strict=True)) | {
        f"{letter}{place}": colour for letter, colours in numbered.items() for place, colour in enumerate(colours)
    }


LIGHT = _palette(
    "paper #ffffff ink #1c2024 soft #5b636b rule #e3e6e9 strong-rule #8b939b box #f5f7f8 "
    "worse #e7e5e2 diverged #b9b4ae star #ffffff",
    "#0067a8 #c04f00 #007d5b #a8447f #7a6400 #5a52c4 #006f80 #9b2f2f",
    "#edf3f9 #dce8f4 #c7dbed #acc9e3 #8cb4d8 #6a9cc9 #4a83b7 #2f69a1 #1a4f87 #0a3565",
    "#f1efec",
)
DARK = _palette(
    "paper #15181b ink #e8eaec soft #a4acb4 rule #2b3035 strong-rule #767e86 box #1e2327 "
    "worse #2c2a28 diverged #55504b star #15181b",
    "#5cb2ee #f39654 #46c99c #e592c4 #d9bd4a #a49dff #4cc3d6 #f08a84",
    "#1a2631 #1e3346 #23415c #2a5174 #34648f #437aaa #5b93c3 #7caed8 #a4caea #d3e7f8",
    "#2b2d30",
)


def page_style() -> str:
    """Style of a page and its drawings, as variables: follows the reader's setting; print is light."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{_variables(DARK)}\n}}"
    return "\n".join((_variables(LIGHT), dark, _rules()))


def file_style() -> str:
    """For a drawing by itself: light, without variables, which many programs that read SVG do not know."""
    return re.sub(r"var\(--([\w-]+)\)", lambda found: LIGHT[found[1]], _rules())


def _rules() -> str:
    """The rules as they stand in the file, and those of the numbered colours."""
    looks = {"s": "color", "h": "fill", "g": "fill"}
    numbered = (
        f"svg .{name} {{ {looks[name[0]]}: var(--{name}); }}" for name in LIGHT if re.fullmatch(r"[shg]\d+", name)
    )
    return "\n".join((RULES.read_text("utf-8").strip(), *numbered))


def _variables(palette: dict[str, str]) -> str:
    return f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in palette.items())} }}"
