"""The colours of all drawings: pages follow the reader's light or dark setting, files are always
light.
"""

import re


def _palette(named: str, **numbered: str) -> dict[str, str]:
    """Colours by name, from pairs `name #rrggbb`; then numbered colours of each letter.

    >>> _palette("ink #000000", s="#ff0000 #00ff00")
    {'ink': '#000000', 's0': '#ff0000', 's1': '#00ff00'}
    """
    words = named.split()
    colours = dict(zip(words[::2], words[1::2], strict=True))
    for letter, row in numbered.items():
        for place, colour in enumerate(row.split()):
            colours[f"{letter}{place}"] = colour
    return colours


# s: lines and bars, distinct for people with red-green colour blindness; h: cells, from weak to
# strong; g: shares from 0 to 1; the ends are the orange and the blue of s.
LIGHT = _palette(
    "paper #ffffff ink #1c2024 soft #5b636b rule #e3e6e9 strong-rule #8b939b box #f5f7f8 "
    "worse #e7e5e2 diverged #b9b4ae",
    s="#0067a8 #c04f00 #007d5b #a8447f #7a6400 #5a52c4 #006f80 #9b2f2f",
    h="#edf3f9 #dce8f4 #c7dbed #acc9e3 #8cb4d8 #6a9cc9 #4a83b7 #2f69a1 #1a4f87 #0a3565",
    g="#c04f00 #ca6f2f #d48f5e #ddaf8e #e7cfbd #f1efec #c1d4de #91b9d1 #609dc3 #3082b6 #0067a8",
)
DARK = _palette(
    "paper #15181b ink #e8eaec soft #a4acb4 rule #2b3035 strong-rule #767e86 box #1e2327 "
    "worse #2c2a28 diverged #55504b",
    s="#5cb2ee #f39654 #46c99c #e592c4 #d9bd4a #a49dff #4cc3d6 #f08a84",
    h="#1a2631 #1e3346 #23415c #2a5174 #34648f #437aaa #5b93c3 #7caed8 #a4caea #d3e7f8",
    g="#f39654 #cb814d #a36c46 #7b573e #534237 #2b2d30 #354856 #3f627c #487da2 #5297c8 #5cb2ee",
)
SERIES, CELLS, SHARES = (
    [LIGHT[n] for n in LIGHT if re.fullmatch(rf"{letter}\d+", n)] for letter in "shg"
)
NAMES = {colour: name for name, colour in reversed(LIGHT.items())}


def page_style() -> str:
    """Colours of a page and its drawings, as variables: follow the reader's setting; print is
    light.
    """
    light = _variables(LIGHT)
    dark = _variables(DARK)
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _variables(palette: dict[str, str]) -> str:
    """A rule that makes each colour a variable: `:root { --ink: #000000; }`."""
    declarations = [f"--{name}: {colour};" for name, colour in palette.items()]
    return f":root {{ {' '.join(declarations)} }}"


def with_variables(svg: str) -> str:
    """A drawing with its colours replaced by the variables of the page.

    >>> with_variables('<path style="fill: #ffffff"/>')
    '<path style="fill: var(--paper)"/>'
    """
    return re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})",
        lambda match: f"{match[1]}: var(--{NAMES[match[2]]})",
        svg,
    )


def with_schemes(svg: str) -> str:
    """A file whose colours follow the reader's screen: light as it is, and dark by a style of its
    own.
    """
    rules = []
    for kind, colour in sorted(set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", svg))):
        dark = DARK[NAMES[colour]]
        # Colours are in `style` attributes, which only an important rule overrides.
        rules.append(f'[style*="{kind}: {colour}"]{{{kind}:{dark} !important}}')
    style = f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    return svg.replace(">", f">{style}", 1)
