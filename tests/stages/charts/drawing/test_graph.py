"""Lineage drawn: columns by depth, no line twice, no box upon another."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import Box, Graph
from stages.charts.drawing.graph import HEIGHT, WIDTH, depths, direct_sources, draw_graph
from tests.stages.charts.drawing.elements import parts

Sources = dict[str, list[str]]


@st.composite
def graphs(draw: st.DrawFn) -> Sources:
    """Nodes `0`, `1`, … that each come from some of those before."""
    count = draw(st.integers(1, 9))
    return {str(node): [str(s) for s in range(node) if draw(st.booleans())] for node in range(count)}


def ways(sources: Sources, start: str, stop: str) -> list[int]:
    """The lengths of all ways from one node to another, by walking each of them."""
    if start == stop:
        return [0]
    return [1 + length for source in sources[stop] for length in ways(sources, start, source)]


@given(graphs())
def test_depth_is_the_longest_way_from_any_beginning(sources: Sources) -> None:
    slow = {node: max(max(ways(sources, start, node), default=0) for start in sources) for node in sources}
    assert depths(sources) == slow


@given(graphs())
def test_a_source_is_direct_where_no_longer_way_leads_to_it(sources: Sources) -> None:
    slow = {node: [s for s in own if max(ways(sources, s, node)) == 1] for node, own in sources.items()}
    assert direct_sources(sources) == slow


@given(graphs())
def test_boxes_do_not_overlap_and_lie_within_the_figure(sources: Sources) -> None:
    boxes = [Box(node, f"head {node}", "foot", own, look="node") for node, own in sources.items()]
    drawing = draw_graph(Graph(boxes))
    places = [(float(r.get("x") or 0), float(r.get("y") or 0)) for r in parts(drawing, "rect", "node")]
    assert len(places) == len(boxes)
    for (x, y), (other_x, other_y) in combinations(places, 2):
        assert abs(x - other_x) >= WIDTH or abs(y - other_y) >= HEIGHT
    assert all(0 <= x <= drawing.width - WIDTH and 0 <= y <= drawing.height - HEIGHT for x, y in places)


def test_a_line_that_passes_a_column_runs_between_boxes() -> None:
    sources: Sources = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["a"], "f": ["d", "e"]}
    drawing = draw_graph(Graph([Box(k, k, "", own, look="node") for k, own in sources.items()]))
    boxes, lanes = parts(drawing, "rect", "node"), parts(drawing, "line", "edge")
    assert len(lanes) == 2
    for lane, box in product(lanes, boxes):
        if lane.get("x1") == box.get("x"):
            assert not float(box.get("y") or 0) <= float(lane.get("y1") or 0) <= float(box.get("y") or 0) + HEIGHT
