"""Lineage drawn: columns by depth, no line twice, no box upon another."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import Box, Graph
from stages.charts.graph import HEIGHT, WIDTH, depths, direct_sources, graph_spec

Sources = dict[str, list[str]]


@st.composite
def graphs(draw: st.DrawFn) -> Sources:
    """Nodes `0`, `1`, … that each come from some of those before."""
    count = draw(st.integers(1, 9))
    return {
        str(node): [str(s) for s in range(node) if draw(st.booleans())] for node in range(count)
    }


def ways(sources: Sources, start: str, stop: str) -> list[int]:
    """The lengths of all ways from one node to another, by walking each of them."""
    if start == stop:
        return [0]
    return [1 + length for source in sources[stop] for length in ways(sources, start, source)]


@given(graphs())
def test_depth_is_the_longest_way_from_any_beginning(sources: Sources) -> None:
    slow = {
        node: max(max(ways(sources, start, node), default=0) for start in sources)
        for node in sources
    }
    assert depths(sources) == slow


@given(graphs())
def test_a_source_is_direct_where_no_longer_way_leads_to_it(sources: Sources) -> None:
    slow = {
        node: [s for s in own if max(ways(sources, s, node)) == 1] for node, own in sources.items()
    }
    assert direct_sources(sources) == slow


Data = list[dict[str, float]]


def drawn(sources: Sources) -> tuple[dict[str, float], Data, Data]:
    """Size of a drawing, its boxes, and the points of its lines."""
    spec = graph_spec(
        Graph([Box(node, f"head {node}", "foot", own) for node, own in sources.items()])
    )
    lines, boxes, *_ = (layer["data"]["values"] for layer in spec["layer"])
    return spec, boxes, lines


@given(graphs())
def test_boxes_do_not_overlap_and_lie_within_the_figure(sources: Sources) -> None:
    size, boxes, _ = drawn(sources)
    assert len(boxes) == len(sources)
    for one, other in combinations(boxes, 2):
        assert abs(one["x"] - other["x"]) >= WIDTH or abs(one["y"] - other["y"]) >= HEIGHT
    assert all(box["x"] >= 0 and box["x2"] <= size["width"] for box in boxes)
    assert all(box["y"] > -1e-9 and box["y2"] < size["height"] + 1e-9 for box in boxes)


def test_a_line_that_passes_a_column_runs_between_boxes() -> None:
    sources: Sources = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["a"], "f": ["d", "e"]}
    _, boxes, points = drawn(sources)
    for point, box in product(points, boxes):
        inside = box["x"] < point["x"] < box["x2"] or {"x": point["x"], "y": point["y"]} == {
            "x": box["x"],
            "y": 0,
        }
        assert not (inside and box["y"] <= point["y"] <= box["y2"])
