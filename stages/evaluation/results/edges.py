"""Numbers whose best value is the first or last of those that were tried: the best may lie beyond. Free of torch."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stages.numbers import number


def edge_warnings(
    report: Mapping[str, Any], tuned: Iterable[tuple[str, float]], most: Mapping[str, int]
) -> Iterator[str]:
    """A sentence for each.

    Args:
        report: content of `metrics.json`.
        tuned: numbers, by name, that were chosen at the edge of their grid.
        most: of amounts (`k`, `size`) the largest that there can be, which is no edge.
    """
    reported = set()
    for name, value in tuned:
        reported.add(name)
        if value < most.get(name, value + 1):
            yield f"The best {name}, {value:.4g}, lies at the edge of its grid; give a list that goes on beyond it."
    for curve in report["curves"]:
        over, points = curve["over"], [point for point in curve["points"] if point["perplexity"] is not None]
        if over not in reported and over in most and _ends_at_its_best(points) and points[-1][over] < most[over]:
            reported.add(over)
            yield (
                f"The perplexity of {curve['row']} is best at {over} {number(points[-1][over])}, the edge of what was "
                f"tried: more may be better ({over}=N in --memory)."
            )


def _ends_at_its_best(points: list[Mapping[str, Any]]) -> bool:
    return len(points) > 2 and all(points[-1]["perplexity"] < point["perplexity"] for point in points[:-1])
