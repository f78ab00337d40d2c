"""Conditions on the rows of a report: the baseline of each gain, and whether the gain is worth
anything.
"""

import math
from collections.abc import Iterator, Sequence

from stages.methods import METHODS
from stages.metrics import FEWEST_UNITS, MOST_PASSES, NEARLY, undertrained
from stages.numbers import joined, number, passes
from stages.reports.counting import AgainstCounting, against_counting, beats
from stages.reports.fields import PLAIN, SHUT, counting, repeated_share
from stages.reports.remarks import (
    FEW_UNITS,
    HARDLY_BETTER,
    NOTABLY_REPEATED,
    Figures,
    Finding,
)
from stages.reports.tables import change
from stages.retrieval.grammar import DYNAMIC

HALF = 0.5
"""Share of tokens searched for, whose perplexity a remark reports."""


def trained_with_memory(method: str) -> bool:
    """Whether models of a method are trained with memory, so that without it they are no fair
    baseline.
    """
    return method in METHODS and METHODS.settings(method).evaluation.trained_with_memory


def notably_repeated(report: Figures) -> bool:
    """Whether so much of the text was read before that gains are reported on new text, too."""
    return repeated_share(report) >= NOTABLY_REPEATED


def wholly_repeated(report: Figures) -> bool:
    """Whether all of the text was read before, so that no gain on new text is known."""
    return repeated_share(report) == 1


# The gate


def gate_gains_nothing(report: Figures) -> Iterator[Finding]:
    """A gate whose model is no worse without any neighbour."""
    first, *others = report["rows"]
    for row in others:
        pair = first["perplexity"], row["perplexity"]
        if row["row"] == SHUT and None not in pair and pair[1] <= pair[0]:
            yield "gate-gains-nothing", {"open": number(pair[0]), "shut": number(pair[1])}


# Counting


def counting_control(report: Figures) -> Iterator[Finding]:
    """A model that hardly beats a trigram of its training text, and rows that do not beat their
    control, or perhaps by chance alone.
    """
    rows = _fair_rows(report, report["rows"])
    control = _trigram(report)
    if control is not None:
        counted, limit, new = control
        first, *others = _fair_rows(report, counted)
        on_new_text = " on new text" if new else ""
        values = {
            "row": first["row"],
            "limit": f"{number(limit)}{on_new_text}",
            "remedy": _remedy(report),
        }
        if not beats(first["perplexity"], limit):
            # The trigram is the control of the model's own row, so that row is left out.
            losing = [row["row"] for row in rows[1:] if against_counting(report, row).loses]
            yield "worse-than-trigram", {**values, "rest": _rest(others, limit, losing)}
            return
        if not beats(first["perplexity"], limit * HARDLY_BETTER):
            yield "hardly-better-than-trigram", {**values, "rest": _rest(others, limit, ())}
        elif counting(report["rows"][0]) is None:  # otherwise a column of the table shows it
            figure = f" ({number(limit)} on new text)" if new else ""
            yield "trigram", {"limit": number(report["trigram"]["perplexity"]), "new": figure}
    pairs = {row["row"]: against_counting(report, row) for row in rows}
    new_text = " on new text" if repeated_share(report) else ""
    beaten = [_compared_with_counting(name, pair) for name, pair in pairs.items() if pair.loses]
    if beaten:
        do, they = ("does", "it") if len(beaten) == 1 else ("do", "they")
        yield (
            "worse-than-counting",
            {"rows": joined(beaten), "do": do, "they": they, "new": new_text},
        )
    tying = [_compared_with_counting(name, pair) for name, pair in pairs.items() if pair.ties]
    if tying:
        are = "is" if len(tying) == 1 else "are"
        yield "ties-with-counting", {"rows": joined(tying), "are": are, "new": new_text}


def _compared_with_counting(name: str, pair: AgainstCounting) -> str:
    """`exact (26.99, counting 27.66: -2.4% [-5.2, +0.4])`."""
    row = "diverges" if pair.perplexity is None else number(pair.perplexity)
    control = "" if pair.counting is None else number(pair.counting)
    moved = f": {change(pair.change, pair.interval).plain}" if pair.interval else ""
    return f"{name} ({row}, counting {control}{moved})"


def row_worse_than_trigram(report: Figures, name: str) -> bool:
    """Whether a row does not beat a trigram of the training text; on new text, if some was read
    before.
    """
    control = _trigram(report)
    return control is not None and any(
        row["row"] == name and not beats(row["perplexity"], control[1]) for row in control[0]
    )


def _trigram(report: Figures) -> tuple[Sequence[Figures], float, bool] | None:
    """Rows, the trigram's perplexity, and whether both are on new text: so if some was read before;
    None without it.
    """
    counted = report.get("trigram")
    if not counted or counted["perplexity"] is None:
        return None
    if repeated_share(report) and counted["perplexity_on_new_text"] is not None:
        return (
            report["outside_repeated_paragraphs"]["rows"],
            counted["perplexity_on_new_text"],
            True,
        )
    return report["rows"], counted["perplexity"], False


def _rest(others: Sequence[Figures], limit: float, losing: Sequence[str]) -> str:
    """Words on the other rows of a model that hardly beats a trigram; `losing`: those that lose to
    their control.
    """
    if len(losing) == len(others) > 1:
        return "; nor is any other row"
    if losing:
        return f"; nor {'is' if len(losing) == 1 else 'are'} {joined(losing)}"
    if others and not any(beats(row["perplexity"], limit * HARDLY_BETTER) for row in others):
        slightly = any(beats(row["perplexity"], limit) for row in others)
        return "; no other row is by more than a little" if slightly else "; nor is any other row"
    return ""


def _remedy(report: Figures) -> str:
    """Advice on a weak model: more passes over its text while they help, then more text."""
    training = report.get("training")
    if training is None or undertrained(training):
        return "Train longer, or on more text."
    read = passes(training["passes"])
    if (
        training["passes"] < MOST_PASSES * NEARLY
    ):  # perhaps validated only once, which says nothing of longer training
        return f"Train on more text, for more than {read} if validation falls, or another model (memlm presets)."
    return f"Train on more text, or another model (memlm presets): after {read} longer training gains little."


def counted_orders(report: Figures) -> Iterator[Finding]:
    """Controls with n-grams of orders other than three, if they were asked for."""
    rows = []
    for row in report["rows"]:
        orders = (row.get("control") or {}).get("orders") or {}
        if orders:
            figures = ", ".join(
                f"{order}: {number(of_order['perplexity'])}" for order, of_order in orders.items()
            )
            rows.append(f"{row['row']} {figures}")
    if rows:
        yield "counted-orders", {"rows": "; ".join(rows)}


def counted_texts(report: Figures) -> Iterator[Finding]:
    """The text in which each control counts, if it differs between rows."""
    rows = [row for row in report["rows"] if row.get("control")]
    counted: dict[str, list[str]] = {}
    for row in rows:
        counted.setdefault(_counted(row["control"]), []).append(row["row"])
    if len(counted) > 1 or any(counting(row) is None for row in rows):
        yield (
            "counted-texts",
            {"texts": "; ".join(f"{joined(names)}: {text}" for text, names in counted.items())},
        )


def _counted(control: Figures) -> str:
    """`train of tokens/3f9a1c2b7d4e and what was scored before (weight 0.21, fitted on valid)`."""
    texts = [f"{text['split']} of {text['corpus']}" for text in control["texts"]]
    if control["past"] is not None:
        fitted = "" if control["tune_split"] is None else f", fitted on {control['tune_split']}"
        weight = "" if control["weight"] is None else f" (weight {control['weight']:.2g}{fitted})"
        where = "in the same document" if control["past"] == "document" else "before"
        texts.append(f"what was scored {where}{weight}")
    tokens = sum(text["tokens"] for text in control["texts"])
    why = f"{tokens:,} tokens are too many, or the scored text is among them"
    dropped = f" (not counted: {why})" if control["perplexity"] is None else ""
    return f"{joined(texts)}{dropped}"


# Baselines of changes


HOW_READ = {PLAIN: "without memory", DYNAMIC: "as it learns from what it has scored"}
"""How the model of a first row is read, by the row's name."""


def compared_with(report: Figures) -> Iterator[Finding]:
    """The row that every change is measured against, and whether it is a fair baseline."""
    baseline = report.get("baseline")
    if baseline is not None:
        first = baseline["row"]["row"]
        report_words = "" if baseline["report"] is None else f" ({baseline['report']})"
        model = f"{baseline['model']}{report_words}"
        method = baseline["method"]
    elif len(report["rows"]) > 1 and "model" in report.get("read", {}):
        first = report["rows"][0]["row"]
        model = report["read"]["model"]
        method = report["method"]
    else:
        return
    if baseline is not None and baseline.get("differs"):
        yield (
            "unlike-baseline",
            {"model": baseline["model"], "differs": "; ".join(baseline["differs"])},
        )
    if first == PLAIN and trained_with_memory(method):
        yield "no-fair-baseline", {"first": first}
    how = HOW_READ.get(first, "with what its gate reads")
    yield "compared-with", {"first": first, "model": model, "how": how}


# How sure changes are


def intervals(figures: Figures) -> Iterator[Finding]:
    """How the intervals of a report or a comparison were drawn, and whether there were enough
    units.
    """
    bootstrap = figures.get("change_intervals") or figures.get("bootstrap")
    if not bootstrap:
        return
    units = f"{bootstrap['units']:,} {bootstrap['unit']}{'s' if bootstrap['units'] != 1 else ''}"
    if bootstrap["unit"] == "group":
        units = f"{units} of consecutive documents"
    elif bootstrap.get("block_tokens"):
        units = f"{units} of {bootstrap['block_tokens']:,} consecutive tokens"
    if bootstrap["units"] < FEWEST_UNITS:
        yield "no-intervals", {"units": units, "are": "is" if bootstrap["units"] == 1 else "are"}
        return
    if bootstrap["unit"] == "group":
        units = f"{units}, {bootstrap['block_tokens']:,} tokens or more in each"
    if bootstrap["units"] < FEW_UNITS:
        yield "rough-intervals", {"units": units}
    confidence = f"{100 * bootstrap['confidence']:.4g}%"
    yield (
        "intervals",
        {"units": units, "confidence": confidence, "samples": f"{bootstrap['samples']:,}"},
    )


def tied(report: Figures) -> tuple[str, list[str]] | None:
    """The row with the lowest perplexity, and the rows that may be above it by chance alone; None
    if there are none.
    """
    rows = (report.get("change_intervals") or {}).get("rows", ())
    ties = [row["row"] for row in rows if row.get("above_lowest") and row["above_lowest"][0] <= 0]
    baseline = [report["baseline"]["row"]] if report.get("baseline") else []
    everything = [*baseline, *report["rows"]]
    lowest = min(
        everything, key=lambda row: math.inf if row["perplexity"] is None else row["perplexity"]
    )
    of_these = any(
        row["row"] == lowest["row"] and not row["above_lowest"]
        for row in rows
        if "above_lowest" in row
    )
    return (lowest["row"], ties) if ties and of_these and lowest not in baseline else None


def ties(report: Figures) -> Iterator[Finding]:
    """A lowest row that is not significantly better than another."""
    tie = tied(report)
    if tie is not None:
        yield "ties", {"lowest": tie[0], "others": joined(tie[1])}


def undertrained_model(report: Figures) -> Iterator[Finding]:
    """An undertrained model, on which a memory gains more than on a converged one."""
    training = report.get("training")
    if training and undertrained(training):
        falling = ", and validation was still falling" if training["still_falling"] else ""
        model = report["read"]["model"]
        yield (
            "undertrained",
            {"model": model, "passes": passes(training["passes"]), "falling": falling},
        )


# A weight for each context


def learned_weight(report: Figures) -> Iterator[Finding]:
    """The gain of a learned weight on held-out tokens, and the perplexity when fewer tokens are
    searched for.
    """
    figures = report.get("learned_weight")
    if not figures:
        return
    gains = figures["held_out_gains"]
    memory = report["memories"][-1]
    values = {
        "name": figures["name"],
        "one": number(figures["one_for_all"]),
        "mean": "" if figures["mean"] is None else number(figures["mean"]),
        "split": memory["tune_split"],
        "parts": str(len(gains)),
        "change": f"{math.exp(-sum(gains) / len(gains)) - 1:+.1%}" if gains else "",
        "tokens": f"{figures['fitted_tokens']:,}",
        "searches": " Every token is searched for." if "searched" in memory else "",
    }
    yield (
        "learned-weight"
        if figures["used"]
        else "unsure-learned-weight"
        if gains
        else "too-short-to-learn",
        values,
    )
    points = figures["searches"]
    if not points or None in (points[0]["perplexity"], points[-1]["perplexity"]):
        return
    if points[-1]["asked"] < 1:
        yield "searches-made", {"share": f"{points[-1]['searched']:.1%}"}
    else:
        half = next(point for point in points if point["asked"] == HALF)
        perplexity = number(half["perplexity"])
        share = f"{half['searched']:.0%}"
        yield "worth-of-searches", {"share": share, "perplexity": perplexity, "searched": str(HALF)}


def pointers_followed(report: Figures) -> Iterator[Finding]:
    """The share of tokens that were searched for, if the others followed pointers."""
    share = report.get("searched_share")
    if share is not None:
        yield "pointers-followed", {"share": f"{share:.1%}"}


# Several seeds


def over_seeds(comparison: Figures) -> Iterator[Finding]:
    """Rows whose mean over seeds does not beat, or hardly beats, the mean of their control."""
    for group in comparison["groups"]:
        pairs = {row["row"]: AgainstCounting(**row["against_counting"]) for row in group["rows"]}
        if beaten := [name for name, pair in pairs.items() if pair.loses]:
            do = "does" if len(beaten) == 1 else "do"
            yield (
                "seeds-worse-than-counting",
                {"label": group["label"], "rows": joined(beaten), "do": do},
            )
        if tying := [name for name, pair in pairs.items() if pair.ties]:
            are = "is" if len(tying) == 1 else "are"
            yield (
                "seeds-tie-with-counting",
                {"label": group["label"], "rows": joined(tying), "are": are},
            )


def _fair_rows(report: Figures, rows: Sequence[Figures]) -> Sequence[Figures]:
    """Rows that read a model as it was trained to be read; the first represents the model."""
    return rows[1:] if len(rows) > 1 and trained_with_memory(report.get("method", "")) else rows
