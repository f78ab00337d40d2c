"""Conditions on tuned numbers, and on the length of training.

A memory may be hardly needed, or a best value may be at the edge of its grid. `tuning` of
`metrics.json` has the figures; see `stages.evaluation.figures.report`, and
`stages.training.outputs` for figures of training.
"""

from collections.abc import Iterator, Sequence
from math import exp
from typing import NamedTuple

from stages.metrics import undertrained
from stages.numbers import joined, number, passes
from stages.reports.remarks import NOTABLE_GAIN, Figures, Finding, Values
from stages.reports.remarks.gains import row_worse_than_trigram


class _TunedMemory(NamedTuple):
    """A memory of the requested row, with its tuned numbers."""

    position: int
    """Its place among the memories of the row."""
    row: str
    """The row that reads it alone."""
    name: str
    """Its name in remarks: that row, and the memories before or after it in the requested row.

    The memory in the requested row has other numbers than the row that reads it alone.
    """
    numbers: Figures
    gain: float | None
    """The share by which it lowers the perplexity of its row; None if not known."""
    curve: Figures
    """Perplexity by the amount of this memory alone."""


def tuned_numbers(report: Figures) -> Iterator[Finding]:
    """Memories that are hardly needed; otherwise best values at an edge, and amounts that still
    gained.
    """
    tuning = report.get("tuning")
    if not tuning or not tuning["rows"]:
        return
    for memory in _tuned_memories(report):
        code = _hardly_needed(tuning["rows"][0], memory)
        if code is not None:
            yield code, _need(report, memory)
            continue
        # If a memory is hardly needed, the edges of its grid do not matter.
        edges = _edges(report, memory)
        if edges:
            yield "edge-of-grid", _edge_values(report, memory, edges)
        growth = _growth(report, memory)
        if growth is not None and growth["over"] not in edges:
            yield "more-memory-gains", growth


def _tuned_memories(report: Figures) -> Iterator[_TunedMemory]:
    """The memories of the requested row, in its order."""
    tuning = report["tuning"]
    memories = report["memories"]
    is_single = len(memories) == 1
    # The requested row comes first, then a row for each memory alone, if there are several.
    requested = tuning["rows"][0]
    curves = tuning["rows"] if is_single else tuning["rows"][1:]
    rows_alone = report["rows"][1 if is_single else 2 :]
    rows = [str(figures["row"]) for figures in rows_alone]

    for index, numbers in enumerate(memories):
        name = rows[index]
        if index:
            name = f"{name} after {joined(rows[:index])}"
        elif not is_single:
            name = f"{name} before {joined(rows[1 : len(memories)])}"
        without = _without(tuning, index)
        gain = None
        if without is not None and requested["perplexity"] is not None:
            gain = 1 - requested["perplexity"] / without
        yield _TunedMemory(index, rows[index], name, numbers, gain, curves[index])


def _need(report: Figures, memory: _TunedMemory) -> Values:
    """Values of a remark on a memory that is hardly needed."""
    tuning = report["tuning"]
    requested = tuning["rows"][0]
    weight = requested["weights"][memory.position]
    is_single = len(report["memories"]) == 1
    numbers = {
        "with": requested["perplexity"],
        "without": _without(tuning, memory.position),
        "value": memory.numbers.get(weight),
    }
    values = {name: "" if value is None else number(value) for name, value in numbers.items()}
    return {
        "name": memory.name,
        "split": tuning["split"],
        "weight": weight,
        "others": "the model alone" if is_single else "the others alone",
        "above": " above 0" if weight == "lambda" else "",
        "gain": "" if memory.gain is None else f"{memory.gain:.1%}",
        **values,
    }


def _only_smooths(report: Figures, memory: _TunedMemory) -> bool:
    """Whether a memory alone is worse than a trigram: more neighbours then only smooth."""
    return row_worse_than_trigram(report, memory.row)


def _edges(report: Figures, memory: _TunedMemory) -> list[str]:
    """Names of numbers that are at the edge of their grids, although larger ones are legal."""
    largest = report["tuning"]["largest"]
    edges = []
    for name, is_inside in (memory.numbers.get("interior") or {}).items():
        value = memory.numbers[name]
        is_smoothing = name == "k" and _only_smooths(report, memory)
        if not is_inside and not is_smoothing and value < largest.get(name, value + 1):
            edges.append(name)
    return edges


def _edge_values(report: Figures, memory: _TunedMemory, edges: Sequence[str]) -> Values:
    """Values of the remark on numbers at the edges of their grids."""
    best = " and ".join(f"{name} ({_digits(memory.numbers[name])})" for name in edges)
    is_single = len(report["memories"]) == 1
    is_one = len(edges) == 1
    return {
        "best": best,
        "of": "" if is_single else f" of {memory.name}",
        "lies": "lies at the edge of its grid" if is_one else "lie at the edges of their grids",
    }


def _growth(report: Figures, memory: _TunedMemory) -> Values | None:
    """Values of the remark on an amount that still gained; None if it did not."""
    tuning = report["tuning"]
    over = memory.curve["over"]
    if over == "k" and _only_smooths(report, memory):
        return None
    points = []
    for amount, perplexity in memory.curve["curve"]:
        if perplexity is not None:
            points.append({over: amount, "perplexity": perplexity})
    largest = tuning["largest"].get(over, 0)
    return _still_gained(memory.row, points, over, tuning["split"], largest)


def tuned_on_scored(report: Figures) -> Iterator[Finding]:
    """Numbers of a memory that were chosen on the text that is scored."""
    split = (report.get("tuning") or {}).get("split")
    if split is None or split != report["split"]:
        return
    tuned = [memory for row in report["rows"] for memory in row.get("memories") or ()]
    names = [name for memory in tuned for name in memory.get("tuned") or ()]
    if names:
        yield "tuned-on-scored", {"numbers": joined(list(dict.fromkeys(names))), "split": split}


def more_gains_on_scored(report: Figures) -> Iterator[Finding]:
    """Memories that still gained on the scored split, if nothing was tuned; that split must not
    decide settings.
    """
    tuning = report.get("tuning")
    amounts_said = set()
    if tuning is None or tuning["split"] is not None:
        return
    for curve in report["curves"]:
        over = curve["over"]
        points = [point for point in curve["points"] if point["perplexity"] is not None]
        largest = tuning["largest"].get(over)
        if largest is not None and over not in amounts_said:
            gain = _still_gained(curve["row"], points, over, report["split"], largest)
            if gain is not None:
                amounts_said.add(over)
                yield "more-memory-gains-on-scored", gain


def _hardly_needed(row: Figures, memory: _TunedMemory) -> str | None:
    """The code of the remark on a memory that is not worth a wider search; None if it is."""
    gain = memory.gain
    is_lowest = row["lowest"][memory.position]
    if row["off"][memory.position]:
        return "memory-of-no-use"
    if gain is None:
        return None
    if gain < 0 and (is_lowest or memory.numbers["reader"] == "joint"):
        return "memory-costs"
    return "memory-hardly-needed" if is_lowest and gain < NOTABLE_GAIN else None


def _without(tuning: Figures, index: int) -> float | None:
    """Perplexity of the requested row without one of its memories; None if not known."""
    num_memories = len(tuning["rows"][0]["lowest"])
    if num_memories == 1:
        perplexity = tuning["plain"]
    elif num_memories == 2:
        # Rows 1 and 2 read one memory alone: without the first is the second alone.
        perplexity = tuning["rows"][2 - index]["perplexity"]
    else:
        perplexity = None
    return None if perplexity is None else float(perplexity)


def _still_gained(
    row: str, points: Sequence[Figures], over: str, split: str, largest: int
) -> Values | None:
    """Values of the remark, if the last doubling of an amount gained notably, and there is more to
    read; else None.
    """
    if len(points) < 3 or points[-1][over] >= largest:
        return None
    last = points[-1]
    half = [point for point in points if point[over] <= last[over] / 2] or points[:1]
    gained = 1 - last["perplexity"] / half[-1]["perplexity"]
    if gained <= NOTABLE_GAIN:
        return None
    return {
        "row": row,
        "gain": f"{gained:.1%}",
        "split": split,
        "over": over,
        "amount": number(last[over]),
    }


def _digits(value: float) -> str:
    """A value with at most three digits, since no grid is finer."""
    return f"{float(f'{value:.3g}'):g}" if isinstance(value, float) else str(value)


def long_enough(model: Figures) -> Iterator[Finding]:
    """Number of passes over the text, the end of validation, and whether a longer run would help.

    For a model with a `head` for labels only the passes are reported: it has no validation and no
    memory of text.
    """
    if "passes" not in model:
        return
    yield "passes", {"passes": passes(model["passes"])}
    if model.get("head") is not None:
        return
    validations = model["last_validations"]
    if len(validations) < 2:
        step = f"{sum(v['step'] for v in validations):,}"
        yield "validated-once" if validations else "never-validated", {"step": step}
    else:
        before, last = validations
        values = {
            "before": f"{before['step']:,}",
            "last": f"{last['step']:,}",
            "step": f"{model['valid_step']:,}",
        }
        losses = {"first": before["loss"], "second": last["loss"], "lowest": model["valid_loss"]}
        ending = "lowest-before-end" if model["valid_step"] < model["steps"] else "settled"
        if model["still_falling"]:
            ending = "still-falling" if undertrained(model) else "fell-with-rate"
        yield ending, values | {name: number(exp(min(loss, 700))) for name, loss in losses.items()}
    if undertrained(model):
        yield "too-short", {}
