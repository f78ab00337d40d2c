"""Lineage drawn: columns by depth, no line twice, no box upon another."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import Box, Graph
from stages.charts.graph import (
    HEIGHT,
    WIDTH,
    Layout,
    depths,
    direct_sources,
    graph_axes,
    graph_layout,
)
from stages.charts.sheet import drawing_style

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


def placed(sources: Sources) -> Layout:
    """Places of the boxes and lines of nodes."""
    return graph_layout(
        Graph([Box(node, f"head {node}", "foot", above) for node, above in sources.items()])
    )


@given(graphs())
def test_boxes_do_not_overlap_and_lie_within_the_figure(sources: Sources) -> None:
    layout = placed(sources)
    assert len(layout.corners) == len(sources)
    for (left, top), (other_left, other_top) in combinations(layout.corners.values(), 2):
        assert abs(left - other_left) >= WIDTH or abs(top - other_top) >= HEIGHT
    for left, top in layout.corners.values():
        assert 0 <= left <= layout.width - WIDTH
        assert -1e-9 < top < layout.height - HEIGHT + 1e-9


def test_a_line_that_passes_a_column_runs_between_boxes() -> None:
    sources: Sources = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["a"], "f": ["d", "e"]}
    layout = placed(sources)
    lanes = [edge for edge in layout.edges if edge.passes]
    assert lanes
    for lane, (left, top) in product(lanes, layout.corners.values()):
        assert left != lane.right or not top <= lane.end <= top + HEIGHT


def test_a_text_that_is_wider_than_its_box_is_cut() -> None:
    with drawing_style("graph"):
        axes = graph_axes(Graph([Box("a", "w" * 99, "foot", ())]))
        head, _ = axes.texts
        box = head.get_window_extent()
    assert "…" in head.get_text()
    assert box.width <= 1.6 * WIDTH  # the letter is the widest one
