"""A drawing taken apart."""

from xml.etree import ElementTree

from stages.charts.drawing.figure import Drawing


def parts(drawing: Drawing, tag: str, look: str) -> list[ElementTree.Element]:
    """The elements of a kind and class."""
    root = ElementTree.fromstring(f"<svg>{''.join(drawing.elements)}</svg>")
    return [element for element in root.iter(tag) if look in (element.get("class") or "").split()]
