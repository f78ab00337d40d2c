"""Conditions on tuned numbers, and on the length of training.

A memory may be hardly needed, or a best value may be at the edge of its grid. `tuning` of
`metrics.json` has the figures; see `stages.evaluation.figures.report`, and
`stages.training.outputs` for figures of training.
"""

from collections.abc import Iterator, Sequence
from math import exp

from stages.metrics import undertrained
from stages.numbers import joined, number, passes
from stages.reports.remarks import NOTABLE_GAIN, Figures, Finding, Values
from stages.reports.remarks.gains import row_worse_than_trigram


def tuned_numbers(report: Figures) -> Iterator[Finding]:
    """Memories that are hardly needed; otherwise best values at an edge, and amounts that still
    gained.
    """
    tuning = report.get("tuning")
    if not tuning or not tuning["rows"]:
        return
    memories = report["memories"]
    # The requested row, then a row for each memory alone, if there are several.
    row, *alone = tuning["rows"] if len(memories) > 1 else tuning["rows"] * 2
    names = [str(one["row"]) for one in report["rows"][2 if len(memories) > 1 else 1 :]]
    for place, memory in enumerate(memories):
        without = _without(tuning, place)
        gain = (
            None
            if without is None or row["perplexity"] is None
            else 1 - row["perplexity"] / without
        )
        # The memory in the requested row is distinct from the row that reads it alone, which has
        # other numbers.
        name = names[place]
        if place:
            name = f"{name} after {joined(names[:place])}"
        elif len(memories) > 1:
            name = f"{name} before {joined(names[1 : len(memories)])}"
        code = _hardly_needed(row, place, memory, gain)
        # If a memory is hardly needed, the edges of its grid do not matter.
        if code is not None:
            weight = row["weights"][place]
            others = "the model alone" if len(memories) == 1 else "the others alone"
            above = " above 0" if weight == "lambda" else ""
            share = "" if gain is None else f"{gain:.1%}"
            words = {
                "name": name,
                "split": tuning["split"],
                "weight": weight,
                "others": others,
                "above": above,
            }
            pair = {"with": row["perplexity"], "without": without, "value": memory.get(weight)}
            numbers = {one: "" if value is None else number(value) for one, value in pair.items()}
            yield code, {**words, "gain": share, **numbers}
            continue
        # If the memory alone is worse than a trigram, the gain of more neighbours is only
        # smoothing.
        smoothing = row_worse_than_trigram(report, names[place])
        outer = [one for one, inside in (memory.get("interior") or {}).items() if not inside]
        edges = [one for one in outer if memory[one] < tuning["largest"].get(one, memory[one] + 1)]
        edges = [one for one in edges if not (one == "k" and smoothing)]
        if edges:
            best = " and ".join(f"{one} ({_digits(memory[one])})" for one in edges)
            of = f" of {name}" if len(memories) > 1 else ""
            lies = (
                "lies at the edge of its grid"
                if len(edges) == 1
                else "lie at the edges of their grids"
            )
            yield "edge-of-grid", {"best": best, "of": of, "lies": lies}
        over = alone[place]["over"]
        points = [
            {over: amount, "perplexity": value}
            for amount, value in alone[place]["curve"]
            if value is not None
        ]
        grown = _still_gained(
            names[place], points, over, tuning["split"], tuning["largest"].get(over, 0)
        )
        if grown is not None and over not in edges and not (over == "k" and smoothing):
            yield "more-memory-gains", grown


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


def _hardly_needed(row: Figures, place: int, memory: Figures, gain: float | None) -> str | None:
    """The code of the remark on a memory that is not worth a wider search; None if it is.

    `gain`: the share by which it lowers the perplexity of its row; None if not known.
    """
    if row["off"][place]:
        return "memory-of-no-use"
    if gain is not None and gain < 0 and (memory["reader"] == "joint" or row["lowest"][place]):
        return "memory-costs"
    return (
        "memory-hardly-needed"
        if row["lowest"][place] and gain is not None and gain < NOTABLE_GAIN
        else None
    )


def _without(tuning: Figures, place: int) -> float | None:
    """Perplexity of the requested row without one of its memories; None if not known."""
    memories = len(tuning["rows"][0]["lowest"])
    row = (
        tuning["plain"]
        if memories == 1
        else tuning["rows"][2 - place]["perplexity"]
        if memories == 2
        else None
    )
    return None if row is None else float(row)


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
