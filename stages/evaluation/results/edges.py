"""Numbers whose best value is the first or last of those that were tried: the best may lie beyond. Free of torch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.numbers import number
from stages.retrieval.hyperparameters import amounts, settable

Figures = Mapping[str, Any]
NOTABLE = 0.005
"""Share of perplexity that the last doubling of an amount must have gained for more of it to be worth its time."""


def edge_warnings(report: Figures, most: Mapping[str, int], command: str) -> Iterator[str]:
    """A sentence for each, with the command that looks beyond.

    Args:
        report: content of `metrics.json`.
        most: of amounts (`k`, `size`) the largest that there can be, which is no edge.
        command: evaluates the same, but for its `--memory`.
    """
    memories, reported = report["memories"], set()
    for place, memory in enumerate(memories):
        for name in (name for name, inside in (memory.get("interior") or {}).items() if not inside):
            reported.add(name)
            value = memory[name]
            if value < most.get(name, value + 1):
                beyond = spelled({**memory, name: "/".join(map(_digits, _around(name, value, most.get(name))))})
                words = [beyond if n == place else spelled(m, frozen=True) for n, m in enumerate(memories)]
                yield (
                    f"The best {name}, {value:.4g}, lies at the edge of its grid; a wider one: "
                    f"{' '.join((command, *(f'--memory {word}' for word in words)))}"
                )
    alone = {row["row"]: row["memories"][0] for row in report["rows"] if len(row.get("memories") or ()) == 1}
    for curve in report["curves"]:
        over, points = curve["over"], [point for point in curve["points"] if point["perplexity"] is not None]
        if over in reported or over not in most or curve["row"] not in alone or len(points) < 3:
            continue
        last, gained = points[-1][over], _last_doubling(points, over)
        if gained > NOTABLE and last < most[over]:
            reported.add(over)
            yield (
                f"{curve['row']} still gained {gained:.1%} by the last doubling of {over}, to {number(last)}; more: "
                f"{command} --memory {spelled({**alone[curve['row']], over: min(2 * last, most[over])})}"
            )


def spelled(memory: Figures, frozen: bool = False) -> str:
    """A reading of a report as `--memory` takes it: numbers that were tuned are so again, unless `frozen`.

    Numbers given as text, and amounts, stay as they are.
    """
    said = {name: memory.get(name) for name in ("similarity", "key", "scope")}
    said |= {"reader": memory["reader"]} if memory["reader"] != "interpolate" else {}
    for name in settable():
        tuned = not frozen and name in memory.get("tuned", ()) and name not in amounts()
        value = memory.get(name)
        said[name] = value if value is None or isinstance(value, str) else "tune" if tuned else _digits(value)
    settings = ",".join(f"{name}={value}" for name, value in said.items() if value is not None)
    return f"{'+'.join(memory['sources'])}:{settings}"


def _last_doubling(points: Sequence[Figures], over: str) -> float:
    """The share of perplexity that the last point is below the one with half as much."""
    last = points[-1]
    half = [point for point in points if point[over] <= last[over] / 2] or points[:1]
    return float(1 - last["perplexity"] / half[-1]["perplexity"])


def _around(name: str, value: float, most: int | None) -> list[float]:
    """Values on both sides of one: which edge it lies at is not known."""
    if name in amounts():
        return sorted({min(n, most or n) for n in (int(value), 2 * int(value), 4 * int(value))})
    if name == "alpha":
        return [value + step for step in (-4, -2, 0, 2, 4)]
    factors = (0.25, 0.5, 1, 2, 4)
    if name == "lambda":  # a share, so its odds are multiplied
        return [factor * value / (1 - value + factor * value) for factor in factors]
    return [factor * value for factor in factors]


def _digits(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
