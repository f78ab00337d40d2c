"""Pages and pictures, which a notebook shows."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

from stages.artifacts.durable import write_atomically


class Picture:
    """A drawing; a notebook shows it."""

    def __init__(self, svg: str, title: str) -> None:
        self.svg, self.title = svg, title

    def __repr__(self) -> str:
        return f"<memlm picture: {self.title}>"

    def _repr_svg_(self) -> str:
        return self.svg


class Page:
    """A web page, complete in itself; a notebook shows it in a frame."""

    def __init__(self, html: str, figures: Mapping[str, Picture] | None = None) -> None:
        self.html = html
        self.figures = dict(figures or {})

    def write(self, path: str | Path) -> None:
        """Write it as a file, whole or not at all."""
        write_atomically(Path(path), self.html)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 640px; border: 1px solid #8884"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}" sandbox></iframe>'
