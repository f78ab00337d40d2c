"""Numbers whose best value is the first or last of those that were tried: the best may lie beyond. Free of torch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stages.evaluation.figures.remarks import worse_than_trigram
from stages.numbers import joined, number, percent
from stages.retrieval.hyperparameters import amounts, settable

Figures = Mapping[str, Any]
NOTABLE = 0.005
"""Share of perplexity that the last doubling of an amount must have gained for more of it to be worth its time."""


class TunedRow(NamedTuple):
    """Figures of a row on the tuning split; perplexities are None where they are not known."""

    perplexity: float | None
    """At what was chosen."""
    over: str
    """Name of the first memory's amount: `k`, `size`."""
    curve: Sequence[tuple[int, float | None]]
    """Perplexity of a lone memory with every amount of it."""
    weights: Sequence[str]
    """Name of each memory's weight: `lambda`, `alpha`."""
    lowest: Sequence[bool]
    """Whether the weight of each memory is the smallest of several that were tried."""
    off: Sequence[bool]
    """Whether each memory changes nothing with its weight, and other weights were tried."""


class Tuned(NamedTuple):
    """Figures of the tuning split."""

    split: str
    plain: float | None
    """Perplexity of the model alone."""
    rows: Sequence[TunedRow]
    """Rows of memory: the requested one, then, of several memories, each alone."""


def edge_warnings(report: Figures, tuned: Tuned | None, most: Mapping[str, int], command: str) -> Iterator[str]:
    """A sentence on all numbers at an edge, with the command that looks beyond; others on memory hardly needed.

    Args:
        report: content of `metrics.json`.
        tuned: None: nothing was; then only the scored split says what more memory is worth, and nothing is advised.
        most: of amounts (`k`, `size`) the largest that there can be, which is no edge.
        command: evaluates the same, but for its `--memory`.
    """
    if tuned is None:
        yield from _growing_on_scored(report, most)
        return
    memories, said, wider = report["memories"], [], {}
    for place, memory in enumerate(memories):
        if tuned.rows[0].off[place]:
            yield _of_no_use(report, tuned, place)
            continue
        gain = _gain(tuned, place)
        if gain is not None and gain < 0 and (memory["reader"] == "joint" or tuned.rows[0].lowest[place]):
            yield _worse_than_without(report, tuned, place)
            continue
        if tuned.rows[0].lowest[place] and gain is not None and gain < NOTABLE:
            yield _hardly_needed(report, tuned, place, gain)
            continue
        sentences, values = _looked_beyond(report, tuned, place, most)
        said += sentences
        if values:
            wider[place] = spelled({**memory, **values})
    if said:
        words = [wider.get(place) or spelled(memory, frozen=True) for place, memory in enumerate(memories)]
        stay = [_name_in_row(report, place) for place in range(len(memories)) if place not in wider]
        kept = f", {joined(stay)} as tuned before" if stay else ""
        yield f"{'; '.join(said)}; wider{kept}: {' '.join((command, *(f'--memory {word}' for word in words)))}"


def _gain(tuned: Tuned, place: int) -> float | None:
    """The share of perplexity that a memory takes off what the row has without it; None where that is not known."""
    without, row = _without(tuned, place), tuned.rows[0].perplexity
    return None if without is None or row is None else 1 - row / without


def _without(tuned: Tuned, place: int) -> float | None:
    """Perplexity of what the row has but for a memory; None where that is not known."""
    memories = len(tuned.rows[0].lowest)
    return tuned.plain if memories == 1 else tuned.rows[2 - place].perplexity if memories == 2 else None


def _looked_beyond(
    report: Figures, tuned: Tuned, place: int, most: Mapping[str, int]
) -> tuple[list[str], dict[str, str]]:
    """Sentences about values of one memory at an edge, and wider values as they are typed.

    Not of `k` where the memory alone is worse than a trigram: that it gains is smoothing.
    """
    memory, sentences = report["memories"][place], []
    name, alone = _name_alone(report, place), _alone(report, place)
    curve = tuned.rows[alone].curve
    smoothing = worse_than_trigram(report, name)
    beyond = _beyond(memory, most, [amount for amount, _ in curve])
    values = {setting: value for setting, value in beyond.items() if setting != "k" or not smoothing}
    if values:
        best = " and ".join(f"{setting} ({_digits(memory[setting])})" for setting in values)
        of = f" of {_name_in_row(report, place)}" if len(report["memories"]) > 1 else ""
        lies = "lies at the edge of its grid" if len(values) == 1 else "lie at the edges of their grids"
        sentences.append(f"the best {best}{of} {lies}")
    over = tuned.rows[alone].over
    points = [{over: amount, "perplexity": value} for amount, value in curve if value is not None]
    grown = _still_gained(name, points, over, tuned.split, most.get(over, 0))
    if grown is not None and over not in values and not (over == "k" and smoothing):
        sentences.append(f"{grown} (said until one gains less than {percent(NOTABLE)})")
        values[over] = str(min(2 * points[-1][over], most[over]))
    return sentences, values


def _name_alone(report: Figures, place: int) -> str:
    """The row that reads the memory of a place and no other."""
    return str(report["rows"][1 + _alone(report, place)]["row"])


def _name_in_row(report: Figures, place: int) -> str:
    """A memory of the row that was asked for, told from the row that reads it alone, whose numbers are others."""
    names = [_name_alone(report, at) for at in range(len(report["memories"]))]
    if place:
        return f"{names[place]} after {joined(names[:place])}"
    return f"{names[0]} before {joined(names[1:])}" if len(names) > 1 else names[0]


def _alone(report: Figures, place: int) -> int:
    """Which of the rows with memory reads that of a place and no other."""
    return place + 1 if len(report["memories"]) > 1 else 0


def _of_no_use(report: Figures, tuned: Tuned, place: int) -> str:
    weight, name = tuned.rows[0].weights[place], _name_in_row(report, place)
    without = "the model alone is" if len(report["memories"]) == 1 else "the others alone are"
    return (
        f"{name} does not help: {without} best on {tuned.split}, so of all {weight} that were tried "
        f"{_digits(report['memories'][place][weight])} is taken, with which it changes nothing"
    )


def _hardly_needed(report: Figures, tuned: Tuned, place: int, gain: float) -> str:
    weight, name = tuned.rows[0].weights[place], _name_in_row(report, place)
    above = " above 0" if weight == "lambda" else ""
    return (
        f"{name} is hardly needed: of all {weight}{above} that were tried the lowest is best, "
        f"{_digits(report['memories'][place][weight])}, and it gains {gain:.1%} on {tuned.split}"
    )


def _worse_than_without(report: Figures, tuned: Tuned, place: int) -> str:
    row, without = tuned.rows[0].perplexity, _without(tuned, place)
    assert row is not None and without is not None, "it is known what the memory gains"
    name = _name_in_row(report, place)
    return f"{name} does not help on {tuned.split} ({number(row)} against {number(without)})"


def _beyond(memory: Figures, most: Mapping[str, int], tried: Sequence[int]) -> dict[str, str]:
    """Values around each number at the edge of its grid, as they are typed; `tried`: amounts of this memory."""
    names = [name for name, inside in (memory.get("interior") or {}).items() if not inside]
    return {
        name: "/".join(map(_digits, _around(name, memory[name], most.get(name), tried)))
        for name in names
        if memory[name] < most.get(name, memory[name] + 1)
    }


def _growing_on_scored(report: Figures, most: Mapping[str, int]) -> Iterator[str]:
    """That memory still gained on the split that is scored, which is none to decide by."""
    reported = set()
    for curve in report["curves"]:
        over, points = curve["over"], [point for point in curve["points"] if point["perplexity"] is not None]
        if over not in most or over in reported:
            continue
        sentence = _still_gained(curve["row"], points, over, report["split"], most[over])
        if sentence is not None:
            reported.add(over)
            yield f"{sentence}: nothing was tuned, so nothing but the scored text says so; choose it on another split"


def _still_gained(row: str, points: Sequence[Figures], over: str, split: str, most: int) -> str | None:
    """A sentence where the last doubling of an amount gained notably, and there is more to read."""
    if len(points) < 3 or points[-1][over] >= most:
        return None
    gained = _last_doubling(points, over)
    if gained <= NOTABLE:
        return None
    return f"{row} still gained {gained:.1%} on {split} by the last doubling of {over}, to {number(points[-1][over])}"


def spelled(memory: Figures, frozen: bool = False) -> str:
    """A reading of a report as `--memory` takes it: numbers that were tuned are so again, unless `frozen`.

    Numbers given as text, and amounts, stay as they are.
    """
    said = {name: memory.get(name) for name in ("similarity", "key", "scope", "searched")}
    said |= {"reader": memory["reader"]} if memory["reader"] != "interpolate" else {}
    for name in settable():
        tuned = not frozen and name in memory.get("tuned", ()) and name not in amounts()
        anew = memory.get("policy", "learned") if name == memory.get("learned") else "tune"
        value = memory.get(name)
        said[name] = value if value is None or isinstance(value, str) else anew if tuned else _digits(value)
    settings = ",".join(f"{name}={value}" for name, value in said.items() if value is not None)
    return f"{'+'.join(memory['sources'])}:{settings}"


def _last_doubling(points: Sequence[Figures], over: str) -> float:
    """The share of perplexity that the last point is below the one with half as much."""
    last = points[-1]
    half = [point for point in points if point[over] <= last[over] / 2] or points[:1]
    return float(1 - last["perplexity"] / half[-1]["perplexity"])


def _around(name: str, value: float, most: int | None, tried: Sequence[int]) -> list[float]:
    """Values on both sides of one, whose edge is not known; of an amount fewer if it is the least that was tried."""
    if name in amounts():
        least = len(tried) > 1 and value == min(tried)
        around = [int(factor * value) for factor in ((0.25, 0.5, 1) if least else (1, 2, 4))]
        return sorted({min(max(n, 1), most or n) for n in around})
    if name == "alpha":
        return [value + step for step in (-4, -2, 0, 2, 4)]
    factors = (0.25, 0.5, 1, 2, 4)
    if name == "lambda":  # a share, so its odds are multiplied
        return [factor * value / (1 - value + factor * value) for factor in factors]
    return [factor * value for factor in factors]


def _digits(value: float) -> str:
    """At most three digits: a grid is no finer."""
    return f"{float(f'{value:.3g}'):g}" if isinstance(value, float) else str(value)
