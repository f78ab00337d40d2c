"""Drawing of charts with Vega-Lite: as an element of a page, as an SVG file, as a PNG image."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from stages.charts.data import Bars, Chart, Graph, HeatMap, Histogram, Lines
from stages.charts.graph import graph_spec
from stages.charts.palette import LIGHT, with_variables
from stages.charts.vega import CONFIG, Spec, bars_spec, heat_map_spec, histogram_spec, lines_spec

MARK = "drawn by memlm"
"""Mark in every SVG, so that only memlm's own files are overwritten."""
VEGA_LITE = "5.21"
"""Version of the language; each release of the library supports several."""
TITLE_HEIGHT, TITLE_LETTER = 30, 7.5
"""Height of a title, and the approximate width of its letters, in pixels."""
PIXELS = 2
"""Pixels of an image for each user unit of the SVG."""
NARROW = 432
"""Minimum width of a drawing on a page; for a wide drawing, LEAST_SHARE of its width: less would be
unreadable.
"""
WIDE = 640
LEAST_SHARE = 0.85

Add = Callable[[str], Path]
"""Registers a file of the report, by its relative path; returns the path to write to."""
LEFT_OUT = ("aria-", "class", "font-family", "opacity", "pointer-", "role")
"""Prefixes of attributes that a figure does not need on every element."""
SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True, repr=False)
class Figure(Chart):
    """A chart with its drawing."""

    @classmethod
    def of(cls, chart: Chart) -> "Figure":
        return cls(chart.name, chart.title, chart.caption, chart.plot)

    def __repr__(self) -> str:
        return f"<memlm picture: {self.title}>"

    def _repr_svg_(self) -> str:
        """The drawing, as shown in a notebook."""
        return self.svg

    @property
    def wide(self) -> bool:
        """Whether the drawing is wider than a column of a page."""
        return self._drawing[0] > WIDE

    @property
    def inline(self) -> str:
        """The drawing as an element of a page, with the page's colours."""
        width, height, _ = self._drawing
        least = LEAST_SHARE * width if self.wide else min(width, NARROW)
        style = f'style="--natural: {width}px; --least: {least:g}px"'
        labelled = f'role="img" aria-labelledby="{self.name}-title {self.name}-caption"'
        return with_variables(
            self._svg(f'class="drawing" {style} {labelled} viewBox="0 0 {width} {height}"', "")
        )

    @property
    def svg(self) -> str:
        """The drawing as a separate file: on white, under its title."""
        width, height, _ = self._drawing
        width, height = max(width, round(TITLE_LETTER * len(self.title))), height + TITLE_HEIGHT
        size = f'width="{width}" height="{height}" viewBox="0 {-TITLE_HEIGHT} {width} {height}"'
        paper = (
            f'<rect y="{-TITLE_HEIGHT}" width="{width}" height="{height}" fill="{LIGHT["paper"]}"/>'
        )
        font = f'font-size="14" text-anchor="middle" fill="{LIGHT["ink"]}"'
        title = f'<text x="{width // 2}" y="{22 - TITLE_HEIGHT}" {font}>{escape(self.title)}</text>'
        return self._svg(f'xmlns="{SVG}" {size}', f"<!-- {MARK} -->{paper}{title}") + "\n"

    @property
    def png(self) -> bytes:
        """The same drawing as a PNG image."""
        import vl_convert

        return vl_convert.svg_to_png(self.svg, scale=PIXELS)

    def _svg(self, attributes: str, head: str) -> str:
        words = (
            f'<title id="{self.name}-title">{escape(self.title)}</title>'
            f'<desc id="{self.name}-caption">{escape(self.caption)}</desc>'
        )
        return f'<svg font-family="{CONFIG["font"]}" {attributes}>{words}{head}{self._drawing[2]}</svg>'

    @cached_property
    def _drawing(self) -> tuple[int, int, str]:
        """Width, height, and the elements of the drawing."""
        return _elements(drawn_by_vega(specification(self) | {"config": CONFIG}), self.name)


def drawn_by_vega(spec: Spec) -> str:
    """The SVG of a specification; nothing is fetched from the network."""
    import vl_convert

    return vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE, allowed_base_urls=[])


def specification(chart: Chart) -> Spec:
    """The Vega-Lite specification of a chart."""
    match chart.plot:
        case Lines():
            return lines_spec(chart.plot)
        case Bars():
            return bars_spec(chart.plot)
        case Histogram():
            return histogram_spec(chart.plot)
        case HeatMap():
            return heat_map_spec(chart.plot)
        case Graph():
            return graph_spec(chart.plot)


def figures(charts: Iterable[Chart]) -> list[Figure]:
    """Figures of the charts that are not empty."""
    return [Figure.of(chart) for chart in charts if not chart.plot.empty]


def write_figures(charts: Iterable[Chart], add: Add) -> list[str]:
    """Write `figures/NAME.svg`, `.png` and `.csv` of each chart that is not empty; returns the
    files.
    """
    files = []
    for figure in figures(charts):
        contents = {"svg": figure.svg.encode(), "png": figure.png, "csv": figure.csv.encode()}
        for suffix, content in contents.items():
            files.append(f"figures/{figure.name}.{suffix}")
            add(files[-1]).write_bytes(content)
    return files


def _elements(svg: str, name: str) -> tuple[int, int, str]:
    """Width, height and elements of the library's SVG, without invisible attributes; descriptions
    become tooltips.
    """
    # The library numbers clip paths across charts. Named by the chart, they give the same chart the
    # same bytes.
    names = {
        old: f"{name}-clip-{place}"
        for place, old in enumerate(dict.fromkeys(re.findall(r'id="(clip\d+)"', svg)))
    }
    svg = re.sub(r"\bclip\d+\b", lambda found: names.get(found[0], found[0]), svg)
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(svg)
    for parent in root.iter():
        for child in list(parent):
            if child.get("class") in ("background", "foreground") and not (
                child.get("fill") or child.get("stroke")
            ):
                parent.remove(child)
    for element in root.iter():
        if len(element) == 0 and element.get("role") == "graphics-symbol":
            ElementTree.SubElement(element, f"{{{SVG}}}title").text = element.get("aria-label")
        kept = {name: value for name, value in element.items() if not name.startswith(LEFT_OUT)}
        element.attrib = {
            name: re.sub(r"(\.\d\d)\d+", r"\1", value) for name, value in kept.items()
        }
    inner = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    return (
        int(root.get("width", 0)),
        int(root.get("height", 0)),
        inner.replace(f' xmlns="{SVG}"', ""),
    )
