"""Conditions on tuned numbers, and on the length of training.

A memory may be hardly needed, or a best value may be at the edge of its grid. `tuning` of `metrics.json` has the
figures; see `stages.evaluation.figures.report`, and `stages.training.outputs` for figures of training.
"""

from collections.abc import Iterator, Sequence
from math import exp

from stages.metrics import undertrained
from stages.numbers import joined, number, passes
from stages.reports.remarks import NOTABLE_GAIN, Figures, Finding, Values
from stages.reports.remarks.gains import row_worse_than_trigram


def tuned_numbers(report: Figures) -> Iterator[Finding]:
    """Memories that are hardly needed; otherwise best values at an edge, and amounts that still gained."""
    for place, memory in enumerate(report["memories"] if _tuning_rows(report) else ()):
        code, edges, grown = _hardly_needed(report, place), _edges(report, place), _grown(report, place)
        # If a memory is hardly needed, the edges of its grid do not matter.
        if code is not None:
            yield code, _named(report, place, memory)
            continue
        if edges:
            best = " and ".join(f"{name} ({_digits(memory[name])})" for name in edges)
            of = f" of {_name_in_row(report, place)}" if len(report["memories"]) > 1 else ""
            lies = "lies at the edge of its grid" if len(edges) == 1 else "lie at the edges of their grids"
            yield "edge-of-grid", {"best": best, "of": of, "lies": lies}
        if grown is not None:
            yield "more-memory-gains", grown


def more_gains_on_scored(report: Figures) -> Iterator[Finding]:
    """Memories that still gained on the scored split, if nothing was tuned; that split must not decide settings."""
    tuning, amounts_said = report.get("tuning"), set()
    if tuning is None or tuning["split"] is not None:
        return
    for curve in report["curves"]:
        over, points = curve["over"], [point for point in curve["points"] if point["perplexity"] is not None]
        largest = tuning["largest"].get(over)
        if largest is not None and over not in amounts_said:
            found = _still_gained(curve["row"], points, over, report["split"], largest)
            if found is not None:
                amounts_said.add(over)
                yield "more-memory-gains-on-scored", found


def _tuning_rows(report: Figures) -> Sequence[Figures]:
    rows: Sequence[Figures] = (report.get("tuning") or {"rows": ()})["rows"]
    return rows


def _hardly_needed(report: Figures, place: int) -> str | None:
    """The code of the remark on a memory that is not worth a wider search; None if it is."""
    row, gain = _tuning_rows(report)[0], _gain(report, place)
    if row["off"][place]:
        return "memory-of-no-use"
    if gain is not None and gain < 0 and (report["memories"][place]["reader"] == "joint" or row["lowest"][place]):
        return "memory-costs"
    return "memory-hardly-needed" if row["lowest"][place] and gain is not None and gain < NOTABLE_GAIN else None


def _gain(report: Figures, place: int) -> float | None:
    """The share by which a memory lowers the perplexity of its row; None if not known."""
    without, row = _without(report, place), _tuning_rows(report)[0]["perplexity"]
    return None if without is None or row is None else 1 - row / without


def _without(report: Figures, place: int) -> float | None:
    """Perplexity of the row without one of its memories; None if not known."""
    rows = _tuning_rows(report)
    memories = len(rows[0]["lowest"])
    found = report["tuning"]["plain"] if memories == 1 else rows[2 - place]["perplexity"] if memories == 2 else None
    return None if found is None else float(found)


def _named(report: Figures, place: int, memory: Figures) -> Values:
    """Values of the remark on a memory: its weight, and perplexity on the tuning split with and without it."""
    row, without = _tuning_rows(report)[0], _without(report, place)
    weight, gain = row["weights"][place], _gain(report, place)
    others = "the model alone" if len(report["memories"]) == 1 else "the others alone"
    pair = {"with": row["perplexity"], "without": without, "value": memory.get(weight)}
    return {
        **{"name": _name_in_row(report, place), "split": report["tuning"]["split"], "weight": weight},
        **{"others": others, "above": " above 0" if weight == "lambda" else ""},
        **{"gain": "" if gain is None else f"{gain:.1%}"},
        **{name: "" if value is None else number(value) for name, value in pair.items()},
    }


def _edges(report: Figures, place: int) -> list[str]:
    """Numbers at the edge of their grid, if values beyond it are possible.

    `k` is left out if the memory alone is worse than a trigram: its gain is then only smoothing.
    """
    memory, largest = report["memories"][place], report["tuning"]["largest"]
    smoothing = row_worse_than_trigram(report, _name_alone(report, place))
    names = [name for name, inside in (memory.get("interior") or {}).items() if not inside]
    return [
        name for name in names if memory[name] < largest.get(name, memory[name] + 1) and not (name == "k" and smoothing)
    ]


def _grown(report: Figures, place: int) -> Values | None:
    """Values of the remark on an amount whose last doubling gained; None if it is at an edge already."""
    row, name, largest = _row_alone(report, place), _name_alone(report, place), report["tuning"]["largest"]
    over = row["over"]
    points = [{over: amount, "perplexity": value} for amount, value in row["curve"] if value is not None]
    found = _still_gained(name, points, over, report["tuning"]["split"], largest.get(over, 0))
    smoothing = over == "k" and row_worse_than_trigram(report, name)
    return None if over in _edges(report, place) or smoothing else found


def _still_gained(row: str, points: Sequence[Figures], over: str, split: str, largest: int) -> Values | None:
    """Values of the remark, if the last doubling of an amount gained notably, and there is more to read; else None."""
    if len(points) < 3 or points[-1][over] >= largest:
        return None
    gained = _last_doubling(points, over)
    if gained <= NOTABLE_GAIN:
        return None
    return {"row": row, "gain": f"{gained:.1%}", "split": split, "over": over, "amount": number(points[-1][over])}


def _last_doubling(points: Sequence[Figures], over: str) -> float:
    """The share of perplexity gained between the point with half the amount and the last point."""
    last = points[-1]
    half = [point for point in points if point[over] <= last[over] / 2] or points[:1]
    return float(1 - last["perplexity"] / half[-1]["perplexity"])


def _row_alone(report: Figures, place: int) -> Figures:
    """Figures of the row that reads only the memory at this place."""
    return _tuning_rows(report)[place + 1 if len(report["memories"]) > 1 else 0]


def _name_alone(report: Figures, place: int) -> str:
    """Name of the row that reads only the memory at this place."""
    return str(report["rows"][1 + (place + 1 if len(report["memories"]) > 1 else 0)]["row"])


def _name_in_row(report: Figures, place: int) -> str:
    """Name of a memory in the requested row, distinct from the row that reads it alone, which has other numbers."""
    names = [_name_alone(report, at) for at in range(len(report["memories"]))]
    if place:
        return f"{names[place]} after {joined(names[:place])}"
    return f"{names[0]} before {joined(names[1:])}" if len(names) > 1 else names[0]


def _digits(value: float) -> str:
    """A value with at most three digits, since no grid is finer."""
    return f"{float(f'{value:.3g}'):g}" if isinstance(value, float) else str(value)


def long_enough(model: Figures) -> Iterator[Finding]:
    """Number of passes over the text, the end of validation, and whether a longer run would help.

    For a model with a `head` for labels only the passes are reported: it has no validation and no memory of text.
    """
    if "passes" not in model:
        return
    yield "passes", {"passes": passes(model["passes"])}
    if model.get("head") is not None:
        return
    validations = model["last_validations"]
    if len(validations) < 2:
        yield (
            "validated-once" if validations else "never-validated",
            {"step": f"{sum(v['step'] for v in validations):,}"},
        )
    else:
        before, last = validations
        values = {"before": f"{before['step']:,}", "last": f"{last['step']:,}", "step": f"{model['valid_step']:,}"}
        losses = {"first": before["loss"], "second": last["loss"], "lowest": model["valid_loss"]}
        yield _ending(model), values | {name: number(exp(min(loss, 700))) for name, loss in losses.items()}
    if undertrained(model):
        yield "too-short", {}


def _ending(model: Figures) -> str:
    """The code of the remark on the end of validation."""
    if model["still_falling"]:
        return "still-falling" if undertrained(model) else "fell-with-rate"
    return "lowest-before-end" if model["valid_step"] < model["steps"] else "settled"
