"""Sheets that charts are drawn on with matplotlib: sizes, style, legends, and what is written.

All lengths are pixels of the SVG.
"""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from stages.charts.palette import LIGHT
from stages.charts.titles import FAMILY, TITLE_GAP, TITLE_SIZE, WIDTH, title_height, title_lines

HEIGHT = 230.0
"""Height of the area between the axes of most charts."""
LETTER = 7.0
"""Approximate width of a letter of 11 pixels."""
DOT = 72
"""Pixels of an inch, so that a point is a pixel."""
MARGIN = 5.0
DASHES = (0, (6, 4))

STYLE = {
    # matplotlib brings this font, so that drawings do not depend on those of a machine.
    "font.family": "sans-serif",
    "font.sans-serif": [FAMILY],
    "font.size": 11,
    # Text stays text: small files, and words that can be searched and read aloud.
    "svg.fonttype": "none",
    "text.parse_math": False,
    "figure.dpi": DOT,
    "axes.labelsize": 12,
    "axes.labelpad": 7,
    "axes.labelcolor": LIGHT["soft"],
    "axes.edgecolor": LIGHT["strong-rule"],
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": LIGHT["rule"],
    "xtick.color": LIGHT["strong-rule"],
    "xtick.labelcolor": LIGHT["soft"],
    "ytick.color": LIGHT["strong-rule"],
    "ytick.labelcolor": LIGHT["soft"],
    "ytick.left": False,
    "lines.linewidth": 2,
    "lines.scale_dashes": False,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.8,
    "legend.labelcolor": LIGHT["ink"],
}


@contextmanager
def drawing_style(name: str) -> Iterator[None]:
    """matplotlib's own style with that of charts upon it, whatever a machine's settings are.

    Args:
        name: Name of the chart, from which the identifiers in its SVG are hashed.
    """
    with style.context(["default", STYLE | {"svg.hashsalt": name}]), warnings.catch_warnings():
        # Letters that the font lacks are boxes in images. Another font would be one of the
        # machine.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def new_axes(width: float = WIDTH, height: float = HEIGHT) -> Axes:
    """Axes of this size, the only ones of a new sheet."""
    sheet = Sheet(figsize=(width / DOT, height / DOT))
    return sheet.add_axes((0, 0, 1, 1))


def add_legend(axes: Axes, handles: Sequence[Artist], above: float = 10) -> None:
    """A legend above the axes, in as many columns as have room for the longest label.

    Args:
        above: Distance from the axes.
    """
    if not handles:
        return
    for handle in handles:
        handle.set_label(fitted(str(handle.get_label())))
    longest = max(len(str(handle.get_label())) for handle in handles)
    # A handle and the distances around it take 56 pixels.
    columns = int(WIDTH / (56 + LETTER * longest))
    _, height = size_of(axes)
    axes.legend(
        handles=list(handles),
        loc="lower left",
        bbox_to_anchor=(0, 1 + above / height),
        ncols=max(1, min(len(handles), columns)),
    )


def round_ticks(low: float, high: float, max_steps: int = 6) -> list[float]:
    """Round numbers between `low` and `high`, both included."""
    locator = MaxNLocator(max_steps, steps=[1, 2, 2.5, 5, 10])
    # Sums of steps are rounded, so that numbers are written as .3 and not .30000000000000004.
    ticks = [float(f"{tick:.10g}") for tick in locator.tick_values(low, high)]
    return [tick for tick in ticks if low <= tick <= high]


def size_of(axes: Axes) -> tuple[float, float]:
    """Width and height of axes."""
    box = axes.get_window_extent()
    return box.width, box.height


def fitted(label: str, width: float = WIDTH) -> str:
    """A label without its middle if it is wider than `width`.

    Its end, which usually distinguishes series, stays.
    """
    max_letters = int(width / LETTER)
    if len(label) <= max_letters:
        return label
    head = max_letters // 3
    tail = max_letters - head - 1
    return f"{label[:head]}…{label[-tail:]}"


def drawn_box(axes: Axes) -> Bbox:
    """The box around all that is drawn, with a margin, in whole pixels."""
    inches = sheet_of(axes).get_tightbbox()
    box = Bbox(inches.get_points() * DOT)
    width = math.ceil(box.width + 2 * MARGIN)
    height = math.ceil(box.height + 2 * MARGIN)
    return Bbox.from_bounds(box.x0 - MARGIN, box.y0 - MARGIN, width, height)


def svg_of(axes: Axes, box: Bbox, name: str) -> str:
    """The SVG element of what is drawn in a box; identifiers in it begin with `name`."""
    sheet = sheet_of(axes)
    # matplotlib numbers its groups in each drawing. A page holds several, and no identifier twice.
    for number, artist in enumerate(sheet.findobj()):
        artist.set_gid(f"{name}-{number}")
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    sheet.savefig(
        file, format="svg", transparent=True, bbox_inches=inches_of(box), metadata=nothing
    )
    text = file.getvalue()
    # Inside another element there is no XML declaration.
    return text[text.index("<svg") :].rstrip()


def png_of(axes: Axes, box: Bbox, title: str, pixels: int) -> bytes:
    """An image of what is drawn in a box, under a title, on white.

    Args:
        pixels: Pixels of the image for each pixel of the SVG.
    """
    sheet = sheet_of(axes)
    lines = title_lines(title, box.width)
    place = (box.x0 + box.width / 2, box.y1 + TITLE_GAP)
    middle, bottom = sheet.transFigure.inverted().transform(place)
    words = sheet.text(
        middle,
        bottom,
        "\n".join(lines),
        color=LIGHT["ink"],
        fontsize=TITLE_SIZE,
        ha="center",
        va="bottom",
        linespacing=1.2,
    )
    whole = Bbox.from_extents(box.x0, box.y0, box.x1, box.y1 + title_height(len(lines)))
    file = io.BytesIO()
    sheet.savefig(
        file,
        format="png",
        dpi=pixels * DOT,
        facecolor=LIGHT["paper"],
        bbox_inches=inches_of(whole),
        metadata={"Software": None},
        # Thorough compression took a quarter of the time of an image, and saves little.
        pil_kwargs={"compress_level": 2},
    )
    words.remove()
    return file.getvalue()


def inches_of(box: Bbox) -> Bbox:
    """A box of pixels in inches."""
    return Bbox(box.get_points() / DOT)


def sheet_of(axes: Axes) -> Sheet:
    """The sheet that axes stand on."""
    sheet = axes.get_figure(root=True)
    assert isinstance(sheet, Sheet)
    return sheet
