"""Vega-Lite specifications of charts; `stages.charts.figure` draws them."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from stages.charts.data import Bars, HeatMap, Histogram, Lines, Share, Side, SmallerIsBetter
from stages.charts.palette import CELLS, LIGHT, SERIES, SHARES
from stages.numbers import number, percent, spread_out

Spec = dict[str, Any]

WIDTH, HEIGHT = 460, 230
CELL = 15
"""Height and minimum width of a cell, in pixels."""
LETTER = 6.8
"""Approximate width of a letter in a legend, in pixels."""
POINTS_DRAWN = 400
"""Maximum number of points of a line in the drawing."""
MOST_MARKED = 24
"""Maximum number of points of a line with a sign at every point."""
HIGHEST = 2
"""End of the vertical axis, in levels, so that a value that explodes leaves the rest visible."""
DASHED, SOLID = [6, 4], [1, 0]
SIGNS = (
    "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "M-.9,-.9H.9V.9H-.9Z",
    "M0,-1.2L1.1,.85H-1.1Z",
    "M0,-1.25L1.25,0L0,1.25L-1.25,0Z",
    "M0,1.2L1.1,-.85H-1.1Z",
    "M-.37,-1.15H.37V-.37H1.15V.37H.37V1.15H-.37V.37H-1.15V-.37H-.37Z",
)
"""Circle, square, triangle, diamond, triangle on its tip, cross: distinct without colour."""
DASH = "M-3,0H3"
BLOCK = "M-2,-1.4H2V1.4H-2Z"
STAR = "M0,-1L.27,-.32L1,-.32L.42,.15L.63,.87L0,.43L-.63,.87L-.42,.15L-1,-.32L-.27,-.32Z"
PLAIN, PERCENT = {"labelExpr": "format(datum.value, ',.6~r')"}, {"format": ".3~p"}
SIGNED = {"labelExpr": "datum.value ? format(datum.value, '+,.3~r') : '0'"}
"""Format of the numbers on axes (d3-format); an expression, since a logarithmic axis with a format
drops numbers.
"""
AS_IT_IS: Spec = {"type": "nominal", "scale": None}
"""An encoding without a scale: values are colours and shapes themselves."""
NEAR = 0.05
"""Share of the horizontal axis within which two numbers would touch."""
A_ROUNDING = 1 + 1e-6
"""Factor on the limit, so that a cell equal to the plain model does not count as worse."""

CONFIG: Spec = {
    "background": None,
    # The library ships the first font, so images are the same on every machine; the others have
    # letters of equal width.
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "padding": {"left": 3, "right": 3, "top": 3, "bottom": 10},
    "view": {"stroke": None},
    "axis": {
        **{"labelColor": LIGHT["soft"], "labelFontSize": 11.5, "labelLimit": 300},
        **{
            "titleColor": LIGHT["soft"],
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        **{
            "gridColor": LIGHT["rule"],
            "tickColor": LIGHT["strong-rule"],
            "domainColor": LIGHT["strong-rule"],
        },
    },
    "axisX": {"grid": False, "tickSize": 4},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6, "minExtent": 36},
    "legend": {
        **{
            "orient": "top",
            "direction": "horizontal",
            "title": None,
            "padding": 0,
            "offset": 10,
            "labelLimit": 1000,
        },
        **{
            "labelColor": LIGHT["ink"],
            "labelFontSize": 12,
            "labelOffset": 16,
            "columnPadding": 36,
            "rowPadding": 4,
        },
        **{"symbolOffset": 8, "symbolSize": 50, "symbolOpacity": 1, "symbolStrokeWidth": 2},
        "gradientStrokeColor": LIGHT["paper"],
        "layout": {"bottom": {"direction": "vertical", "margin": 10}},
    },
}


class Look(NamedTuple):
    """Label and style of one series."""

    label: str
    colour: str
    sign: str
    dash: Sequence[int] = SOLID


def lines_spec(plot: Lines) -> Spec:
    """Lines, each with its own colour and sign; values above the axis are cut off.

    >>> from stages.charts.data import Line
    >>> lines_spec(Lines([Line("loss", [(1, 2.5), (2, 2.25)])], "step", "nats"))["layer"][0]["data"]["values"]
    [{'x': 1, 'y': 2.5}, {'x': 2, 'y': 2.25}]
    """
    drawn = [
        (place if line.look is None else line.look, line)
        for place, line in enumerate(plot.lines)
        if line.finite
    ]
    marked = [len(line.finite) <= MOST_MARKED for _, line in drawn]
    looks = [
        Look(
            line.label,
            SERIES[look % len(SERIES)],
            DASH + SIGNS[look % len(SIGNS)] if signs else DASH,
            (SOLID, DASHED)[line.dashed],
        )
        for (look, line), signs in zip(drawn, marked, strict=True)
    ]
    xs, ys = (
        list(values)
        for values in zip(*(point for _, line in drawn for point in line.finite), strict=True)
    )
    top, levels = math.inf, []
    if plot.level is not None:
        top = HIGHEST * plot.level.value
        ys = [*(min(y, top) for y in ys), plot.level.value]
        looks.append(Look(plot.level.label, LIGHT["ink"], DASH, DASHED))
        levels = [_rule("y", plot.level.value)]
    x, y = (
        _quantity("x", plot.across, *_across(plot, xs)),
        _quantity("y", plot.up, *_upward(plot, ys)),
    )
    written = percent if plot.percent else number
    layers, signs = [], []
    for (look, line), style, has_signs in zip(drawn, looks, marked, strict=False):
        # A point far above the axis is drawn nearer to it, since coordinates in SVG cannot be
        # 1e300.
        path = [{"x": x, "y": min(y, 9 * top)} for x, y in thinned(line.finite)]
        mark = {"type": "line", "clip": True, "strokeJoin": "round", "strokeDash": style.dash}
        layers.append(layer(path, mark | {"stroke": style.colour}, x, y))
        points = [
            {"x": x, "y": y, "words": f"{line.label}: {written(y)} at {plot.across} {number(x)}"}
            for x, y in line.finite
            if has_signs and y <= top
        ]
        mark = {
            "type": "point",
            "shape": SIGNS[look % len(SIGNS)],
            "size": 38,
            "fill": style.colour,
            "opacity": 1,
        }
        signs.append(layer(points, mark | {"stroke": LIGHT["paper"], "strokeWidth": 0.8}, x, y))
    return _framed(looks, *levels, *layers, *signs)


def thinned(
    points: Sequence[tuple[float, float]], most: int = POINTS_DRAWN
) -> list[tuple[float, float]]:
    """At most `most` points with the same appearance: the first, the last, and the extremes of
    equal stretches.

    >>> thinned([(0, 1.0), (1, 9.0), (2, 2.0), (3, 0.0), (4, 5.0)], most=4)
    [(0, 1.0), (1, 9.0), (3, 0.0), (4, 5.0)]
    """
    if len(points) <= most:
        return list(points)
    stretches = most // 2 - 1
    kept = [points[0], points[-1]]
    for part in range(stretches):
        held = points[part * len(points) // stretches : (part + 1) * len(points) // stretches]
        # Extremes instead of means, so that a spike in a loss stays visible.
        kept += [min(held, key=lambda p: p[1]), max(held, key=lambda p: p[1])]
    return sorted(dict.fromkeys(kept))


def bars_spec(plot: Bars) -> Spec:
    """One bar for each series in each group, with a whisker for its interval; names without room
    are rotated.
    """
    looks = [
        Look(one.label, SERIES[place % len(SERIES)], BLOCK) for place, one in enumerate(plot.series)
    ]
    bars = [
        {"x": group, "y": value, "series": place, "fill": looks[place].colour}
        | {"words": f"{one.label}, {group}: {signed(value) if plot.signed else number(value)}"}
        for place, one in enumerate(plot.series)
        for group, value in zip(plot.groups, one.values, strict=True)
        if value is not None
    ]
    ends = [
        {"x": group, "series": place, "y": interval[0], "y2": interval[1]}
        for place, one in enumerate(plot.series)
        for group, interval in zip(plot.groups, one.intervals, strict=False)
        if interval is not None
    ]
    beside_each_other = (len(one) + len(other) for one, other in pairwise(plot.groups))
    turned = LETTER / 2 * max(beside_each_other, default=0) > WIDTH / len(plot.groups)
    x: Spec = {"field": "x", "type": "nominal", "title": plot.across}
    x |= {"axis": {"labelAngle": -35 if turned else 0, "domain": False, "ticks": False}}
    x |= {"scale": {"domain": list(plot.groups), "paddingInner": 0.2, "paddingOuter": 0.1}}
    y = _quantity("y", plot.up, {"tickCount": 5} | (SIGNED if plot.signed else {}), {"padding": 10})
    beside = {"field": "series", "type": "nominal", "scale": {"domain": list(range(len(looks)))}}
    ink = {"stroke": LIGHT["ink"], "strokeWidth": 1.4}
    stroke = ink | {"type": "point", "shape": "stroke", "size": 64, "opacity": 1}
    return _framed(
        looks if len(looks) > 1 else [],
        layer(bars, {"type": "bar"}, x, y, xOffset=beside, fill=AS_IT_IS | {"field": "fill"}),
        layer([{"y": 0}], {"type": "rule", "stroke": LIGHT["strong-rule"]}, None, y),
        layer(ends, ink | {"type": "rule"}, x, y, y2={"field": "y2"}, xOffset=beside),
        *(layer(ends, stroke, x, y | {"field": end}, xOffset=beside) for end in ("y", "y2")),
    )


def histogram_spec(plot: Histogram) -> Spec:
    """Steps from edge to edge, filled for the first series, and the mean as a vertical line."""
    looks = [
        Look(one.label, SERIES[place % len(SERIES)], DASH) for place, one in enumerate(plot.series)
    ]
    edges = list(plot.edges)
    x = _quantity("x", plot.across, PLAIN | {"tickCount": 7}, {"zero": False, "nice": False})
    y = _quantity("y", "share", {"tickCount": 5} | PERCENT)
    layers = []
    for place, (one, look) in enumerate(zip(plot.series, looks, strict=True)):
        shares = zip([edges[0], *edges], [0, *one.values, 0], strict=True)
        steps = [{"x": edge, "y": share or 0} for edge, share in shares]
        marks: list[Spec] = [{"type": "line", "stroke": look.colour}]
        marks[:0] = (
            [{"type": "area", "fill": look.colour, "fillOpacity": 0.3}] if place == 0 else []
        )
        for mark in marks:
            layers.append(layer(steps, mark | {"interpolate": "step-after"}, x, y, order=None))
    return _framed(
        [*looks, Look(f"mean {number(plot.mean)}", LIGHT["ink"], DASH, DASHED)],
        *layers,
        _rule("x", plot.mean),
    )


def heat_map_spec(plot: HeatMap) -> Spec:
    """Cells, labels on both sides, and a key of the colours; a star in the best cell, if smaller is
    better.
    """
    columns, rows = len(plot.values), len(plot.values[0])
    cells: list[Spec] = []
    for x, y in product(range(columns), range(rows)):
        value = plot.values[x][y]
        named = (
            f"{side.name} {side.labels[place]}".strip()
            for side, place in ((plot.across, x), (plot.up, y))
        )
        words = f"{', '.join(filter(None, named))}: {number(value) if math.isfinite(value) else 'diverged'}"
        cells.append({"x": x, "y": y, "fill": colour_of(value, plot), "words": words})
    width = max(WIDTH, CELL * columns) if plot.across.turned else WIDTH
    height = CELL * max(rows, 4)
    across = {"field": "x", **_side(plot.across, WIDTH / columns)}
    up = {"field": "y", "sort": "descending", **_side(plot.up)}
    mark = {"type": "rect", "stroke": LIGHT["paper"], "strokeWidth": 0.6}
    layers = [layer(cells, mark, across, up, fill=AS_IT_IS | {"field": "fill"})]
    if isinstance(plot.colours, Share):
        layers.append(_colour_key(SHARES, f"0: {plot.colours.zero}", f"1: {plot.colours.one}"))
    else:
        layers += _best(plot, plot.colours, {cell["fill"] for cell in cells}, across, up)
    return {"width": width, "height": height, "layer": layers}


def _best(
    plot: HeatMap, colours: SmallerIsBetter, shown: set[str], across: Spec, up: Spec
) -> Iterator[Spec]:
    """A star in the best cell, and a key of the colours in use."""
    x, y = best(plot.values)
    smallest = f"best {number(plot.values[x][y])}"
    star = {
        "type": "point",
        "shape": STAR,
        "size": 150,
        "fill": LIGHT["paper"],
        "stroke": LIGHT["ink"],
    }
    star |= {"strokeWidth": 0.6, "opacity": 1}
    yield layer([{"x": x, "y": y, "words": smallest.replace(" ", ": ")}], star, across, up)
    yield _colour_key(CELLS[::-1], smallest, f"{number(colours.limit)} {colours.label}".strip())
    where = f"at {plot.across.name} {plot.across.labels[x]}, {plot.up.name} {plot.up.labels[y]}"
    words = {LIGHT["worse"]: f"worse than {colours.label}", LIGHT["diverged"]: "diverged"}
    beyond = [Look(label, colour, BLOCK) for colour, label in words.items() if colour in shown]
    yield _legend([Look(where, LIGHT["soft"], STAR), *beyond], "bottom")


def signed(value: float) -> str:
    """`+0.25`, `-1.2`, `0`."""
    return f"{value:+.3g}" if value else "0"


def best(values: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Column and row of the smallest value; the first one wins a tie."""
    places = [(across, up) for across, column in enumerate(values) for up in range(len(column))]
    return min(places, key=lambda place: values[place[0]][place[1]])


def colour_of(value: float, plot: HeatMap) -> str:
    """The colour of a cell; if smaller is better, levels are finer near the best value."""
    if isinstance(plot.colours, Share):
        return SHARES[round(min(max(value, 0.0), 1.0) * (len(SHARES) - 1))]
    limit = plot.colours.limit * A_ROUNDING
    if not math.isfinite(value):
        return LIGHT["diverged"]
    if value > limit:
        return LIGHT["worse"]
    smallest = min(min(column) for column in plot.values)
    # The root makes levels finer near the best value, where the settings that matter are close
    # together.
    share = math.sqrt(math.log(value / smallest) / math.log(limit / smallest))
    return CELLS[-1 - min(int(share * len(CELLS)), len(CELLS) - 1)]


def fitted(label: str) -> str:
    """A label without its middle if it is longer than a line; its end, which usually distinguishes
    series, stays.
    """
    most = int(WIDTH / LETTER)
    head = most // 3
    return (
        label if len(label) <= most else f"{label[:head]}…{label[len(label) - (most - head - 1) :]}"
    )


def _framed(looks: Sequence[Look], *layers: Spec) -> Spec:
    """Layers with data under a legend of their series."""
    held = [layer for layer in layers if layer["data"]["values"]]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "layer": [*held, *([_legend(looks)] if looks else [])],
    }


def layer(
    values: Sequence[Spec], mark: Spec, x: Spec | None, y: Spec | None, **encoding: Any
) -> Spec:
    """A layer with its own data; the field `words` is shown as a tooltip."""
    has_words = bool(values) and "words" in values[0]
    axes = {name: axis for name, axis in (("x", x), ("y", y)) if axis is not None}
    words = {"description": {"field": "words"}} if has_words else {}
    return {
        "data": {"values": values},
        "mark": mark | {"aria": has_words},
        "encoding": axes | encoding | words,
    }


def _quantity(field: str, title: str, axis: Spec, scale: Spec | None = None) -> Spec:
    """The encoding of a number."""
    encoding = {"field": field, "type": "quantitative", "title": title, "axis": axis}
    return encoding if scale is None else encoding | {"scale": scale}


def _rule(axis: str, value: float) -> Spec:
    """A dashed line across the whole chart, at a value of one axis."""
    mark = {"type": "rule", "stroke": LIGHT["ink"], "strokeDash": DASHED}
    axes = {axis: {"field": axis, "type": "quantitative"}}
    return layer([{axis: value}], mark, axes.get("x"), axes.get("y"))


def _legend(looks: Sequence[Look], orient: str = "top") -> Spec:
    """A layer without data that has the legend; the library joins the legends of channels with the
    same domain.
    """
    labels = [fitted(look.label) for look in looks]
    columns = max(1, min(len(looks), int((WIDTH + 50) / (62 + LETTER * max(map(len, labels))))))
    legend = {
        "columns": columns,
        "labelExpr": f"{json.dumps(labels)}[datum.index]",
        "orient": orient,
    }
    ranges = {
        "fill": [look.colour for look in looks],
        "stroke": [look.colour for look in looks],
        "strokeDash": [look.dash for look in looks],
        "shape": [look.sign for look in looks],
    }
    domain = [
        f"series {place}" for place in range(len(looks))
    ]  # names: numbers would be joined with a colour key
    encoding = {
        channel: {
            "field": "key",
            "type": "nominal",
            "legend": legend,
            "scale": {"domain": domain, "range": values},
        }
        for channel, values in ranges.items()
    }
    return {"data": {"values": []}, "mark": "point", "encoding": encoding}


def _colour_key(colours: Sequence[str], zero: str, one: str) -> Spec:
    """A legend of the colours of cells, with a label at both ends."""
    label = f"datum.index ? (datum.index < {len(colours) - 1} ? '' : {json.dumps(one)}) : {json.dumps(zero)}"
    legend = {
        "type": "gradient",
        "orient": "bottom",
        "gradientLength": 200,
        "gradientThickness": 11,
    }
    legend |= {"labelExpr": label, "labelColor": LIGHT["soft"]}
    scale = {"type": "quantize", "domain": [0, 1], "range": colours}
    colour = {"field": "key", "type": "quantitative", "scale": scale, "legend": legend}
    return layer([], {"type": "rect"}, None, None, color=colour)


def _side(side: Side, room: float = math.inf) -> Spec:
    """The axis of one side of a heat map; if labels are too wide, only every second, third, … is
    shown.
    """
    longest = max(map(len, side.labels), default=0)
    every = 1 if side.turned else max(1, math.ceil(LETTER * longest / room))
    shown = [label if place % every == 0 else "" for place, label in enumerate(side.labels)]
    options = {
        "labelAngle": -90 if side.turned else 0,
        "labelOverlap": False,
        "ticks": False,
        "domain": False,
    }
    axis = {"labelExpr": f"{json.dumps(shown)}[datum.value]", **options}
    return {"type": "ordinal", "title": side.name or None, "axis": axis}


def _across(plot: Lines, xs: Sequence[float]) -> tuple[Spec, Spec]:
    """Horizontal axis and scale: logarithmic if ticks span a wide range, with a place for zero."""
    scale: Spec = {"domain": [min(xs), max(xs)], "nice": False, "zero": False, "padding": 8}
    axis: Spec = PLAIN | {"labelOverlap": "greedy"}
    if plot.ticks is None:
        return axis | {"tickCount": 7}, scale
    place: Callable[[float], float] = float
    positive = [x for x in xs if x > 0]
    if min(xs) >= 0 and spread_out(positive):
        # symlog is log(1 + x / constant).
        scale |= {"type": "log"} if min(xs) else {"type": "symlog", "constant": min(positive)}
        place = math.log if min(xs) else lambda x: math.log1p(x / min(positive))
    near = NEAR * (place(max(xs)) - place(min(xs)))
    shown = [plot.ticks[0]]
    for tick in plot.ticks[1:]:
        # Otherwise its number would touch the number before.
        if place(tick) - place(shown[-1]) >= near:
            shown.append(tick)
    return axis | {"values": shown}, scale


def _upward(plot: Lines, ys: Sequence[float]) -> tuple[Spec, Spec]:
    """Vertical axis and scale: logarithmic if numbers span a wide range, unless they are shares or
    `even` is set.
    """
    low, high = min(ys), max(ys)
    room = 0 if high > low else abs(high) / 10 or 1.0
    scale: Spec = {"domain": [low - room, high + room], "nice": False, "zero": False, "padding": 11}
    axis: Spec = PERCENT if plot.percent else PLAIN
    if spread_out(ys) and not (plot.percent or plot.even):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        heads = (1, 2, 5) if len(powers) < 4 else (1,)
        values = [head * 10.0**power for power in powers for head in heads]
        return axis | {"values": values}, scale | {"type": "log"}
    return axis | {"tickCount": 5}, scale
